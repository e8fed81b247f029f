/// The little cryptography a client needs; a seam, so that an Apple build uses the system's.
public protocol ClientCryptography: Sendable {
    /// HMAC-SHA256, 32 bytes.
    func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8]
    /// Seeds the jitter of reconnecting; unpredictable, so that a fleet spreads out.
    func randomWord() -> UInt64
}
