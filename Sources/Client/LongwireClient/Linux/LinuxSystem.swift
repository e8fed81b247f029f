// The small parts of the Linux side: cryptography, and the news that the network changed.
#if !canImport(Network)
internal import Cryptography

typealias SystemTransport = SocketTransport

/// The platform's own: OpenSSL.
public struct SystemCryptography: ClientCryptography {
    public init() {}

    public func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        HMACSHA256.code(key: key, message: message)
    }
    public func randomWord() -> UInt64 { SecureRandom.word() }
}

/// Linux tells no program of ours that the network changed: an app calls `networkChanged` where it knows.
final class NetworkWatch {
    init(onUsable: @escaping @Sendable (_ name: String?) -> Void) {}
}
#endif
