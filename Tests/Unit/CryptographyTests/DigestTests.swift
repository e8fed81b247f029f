import Cryptography
import Testing

@Suite("Digests")
struct DigestTests {
    @Test("SHA-256 matches the published vectors of FIPS 180-4")
    func sha256Vectors() {
        #expect(SHA256.digest([]).hex == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(
            SHA256.digest(Array("abc".utf8)).hex == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(SHA256.digest(Array("abc".utf8)).words.0 == 0xba78_16bf_8f01_cfea)
    }

    @Test("HMAC-SHA256 matches the published vectors of RFC 4231, and accepts an empty key")
    func hmacVectors() {
        let code = HMACSHA256.code(key: Array("Jefe".utf8), message: Array("what do ya want for nothing?".utf8))
        #expect(code.prefix(8) == [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e])
        #expect(HMACSHA256.code(key: [], message: []).prefix(4) == [0xb6, 0x13, 0x67, 0x9a])
        #expect(HMACSHA256.isCode(code, of: Array("what do ya want for nothing?".utf8), key: Array("Jefe".utf8)))
        #expect(!HMACSHA256.isCode(Array(code.dropLast()), of: [], key: []))
    }

    @Test("random bytes have the requested length and do not repeat")
    func randomBytes() {
        #expect(SecureRandom.bytes(32).count == 32)
        #expect(SecureRandom.bytes(32) != SecureRandom.bytes(32))
        #expect(SecureRandom.bytes(0).isEmpty)
    }
}
