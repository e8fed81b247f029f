// The platform interface (ClientTransport.swift) on Linux: cryptography and network changes.
#if !canImport(Network)
internal import Cryptography

typealias SystemTransport = SocketTransport

/// The platform's cryptography: OpenSSL.
public struct SystemCryptography: ClientCryptography {
    public init() {}

    public func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        HMACSHA256.code(key: key, message: message)
    }
    public func randomWord() -> UInt64 { SecureRandom.word() }
}

/// A placeholder: on Linux the client does not detect network changes; the app calls `networkChanged`.
final class NetworkWatch {
    init(onUsable: @escaping @Sendable (_ name: String?) -> Void) {}
}
#endif
