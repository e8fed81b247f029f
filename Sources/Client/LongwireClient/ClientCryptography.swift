/// The cryptography that a client needs; a protocol, so that each platform can use its own library.
public protocol ClientCryptography: Sendable {
    /// Returns the HMAC-SHA256 of `message` under `key`, 32 bytes.
    func authenticationCode(of message: [UInt8], key: [UInt8]) -> [UInt8]
    /// Returns a random word that seeds the reconnect jitter; it must be unpredictable, so that the devices of a fleet spread
    /// out.
    func randomWord() -> UInt64
}
