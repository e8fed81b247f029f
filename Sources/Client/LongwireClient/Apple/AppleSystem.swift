// The platform interface (ClientTransport.swift) on Apple's systems: cryptography and network changes.
#if canImport(Network)
internal import CryptoKit
internal import Dispatch
internal import Foundation
internal import Network

typealias SystemTransport = NetworkTransport

/// The platform's cryptography: CryptoKit.
public struct SystemCryptography: ClientCryptography {
    public init() {}

    public func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        Array(HMAC<SHA256>.authenticationCode(for: Data(message), using: SymmetricKey(data: Data(key))))
    }
    public func randomWord() -> UInt64 { UInt64.random(in: .min ... .max) }
}

/// A monitor that reports the network's kind at each change to a usable network, until the monitor is deallocated.
final class NetworkWatch {
    private let monitor = NWPathMonitor()

    init(onUsable: @escaping @Sendable (_ name: String?) -> Void) {
        monitor.pathUpdateHandler = { path in
            guard path.status == .satisfied else { return }
            onUsable(path.usesInterfaceType(.cellular) ? "cellular" : path.usesInterfaceType(.wifi) ? "wifi" : "other")
        }
        monitor.start(queue: DispatchQueue(label: "longwire.network"))
    }

    deinit { monitor.cancel() }
}
#endif
