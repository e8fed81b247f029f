#if canImport(Cryptography)
internal import Cryptography
#elseif canImport(CryptoKit)
internal import CryptoKit
internal import Foundation
#endif

/// The little cryptography a client needs; a seam, so that an Apple build uses the system's.
public protocol ClientCryptography: Sendable {
    /// HMAC-SHA256, 32 bytes.
    func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8]
    /// Seeds the jitter of reconnecting; unpredictable, so that a fleet spreads out.
    func randomWord() -> UInt64
}

/// The platform's own: OpenSSL through our module, or CryptoKit.
public struct SystemCryptography: ClientCryptography {
    public init() {}

    #if canImport(Cryptography)
    public func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        HMACSHA256.code(key: key, message: message)
    }
    public func randomWord() -> UInt64 { SecureRandom.word() }
    #else
    public func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8] {
        Array(HMAC<SHA256>.authenticationCode(for: Data(message), using: SymmetricKey(data: Data(key))))
    }
    public func randomWord() -> UInt64 { UInt64.random(in: .min ... .max) }
    #endif
}
