import Cryptography
import Testing

@Suite("Keys of vendors") struct KeyTests {
    @Test("RSA signatures verify under their own scheme and message only")
    func signatures() throws {
        let key = try RSASigningKey(pem: RSASigningKey.makePEM(), name: "key")
        let message = Array("message".utf8)
        for scheme in RSASigningKey.Scheme.allCases {
            let other: RSASigningKey.Scheme = scheme == .rs256 ? .ps256 : .rs256
            let signature = try #require(key.sign(message, scheme))
            #expect(signature.count == 256 && key.isSignature(signature, of: message, scheme))
            #expect(!key.isSignature(signature, of: message, other))
            #expect(!key.isSignature(signature, of: message + [0], scheme))
            #expect(!key.isSignature([], of: message, scheme))
        }
    }

    @Test("RSA keys that are short, of another kind or unreadable are refused")
    func badKeys() throws {
        let short = try RSASigningKey.makePEM(bitCount: 1_024)
        let curve = try SigningKey.makePEM()
        for pem in [short, curve, [], Array("-----BEGIN PRIVATE KEY-----".utf8)] {
            #expect(throws: TLSFailure.self) { try RSASigningKey(pem: pem, name: "key") }
        }
    }

    @Test("both sides agree on a secret; points off the curve have none")
    func agreement() throws {
        let (first, second) = (try #require(AgreementKey()), try #require(AgreementKey()))
        let secret = try #require(first.sharedSecret(with: second.publicPoint))
        #expect(secret.count == 32 && secret == second.sharedSecret(with: first.publicPoint))
        var bad = second.publicPoint
        bad[64] ^= 1
        for point in [bad, [], [4], [UInt8](repeating: 0, count: 65), [4] + [UInt8](repeating: 0xFF, count: 64)] {
            #expect(first.sharedSecret(with: point) == nil)
        }
        #expect(AgreementKey(scalar: [1], publicPoint: first.publicPoint) == nil)
    }

    @Test("a key is read from PEM; a scalar of another point, and a key of another kind, are refused")
    func agreementKeys() throws {
        let pem = try SigningKey.makePEM()
        let key = try #require(AgreementKey(pem: pem))
        #expect(try key.publicPoint == SigningKey(pem: pem, name: "key").publicPoint)
        #expect(AgreementKey(pem: try RSASigningKey.makePEM()) == nil && AgreementKey(pem: []) == nil)
        let scalar = [UInt8](repeating: 0, count: 31) + [1]
        #expect(AgreementKey(scalar: scalar, publicPoint: key.publicPoint) == nil)
        #expect(AgreementKey(scalar: [UInt8](repeating: 0, count: 32), publicPoint: key.publicPoint) == nil)
    }

    @Test("a signing key's public point has 65 bytes")
    func publicPoint() throws {
        let point = try SigningKey(pem: SigningKey.makePEM(), name: "key").publicPoint
        #expect(point?.count == 65 && point?.first == 4)
    }

    /// McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 1 and 2.
    @Test("AES-128-GCM gives the published results, and changed bytes are refused")
    func sealing() throws {
        let zeros = [UInt8](repeating: 0, count: 16)
        let nonce = [UInt8](repeating: 0, count: 12)
        #expect(AES128GCM.seal([], key: zeros, nonce: nonce)?.hexDigits == "58e2fccefa7e3061367f1d57a4e7455a")
        let sealed = try #require(AES128GCM.seal(zeros, key: zeros, nonce: nonce))
        #expect(sealed.hexDigits == "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf")
        #expect(AES128GCM.open(sealed, key: zeros, nonce: nonce) == zeros)
        for place in sealed.indices {
            var changed = sealed
            changed[place] ^= 1
            #expect(AES128GCM.open(changed, key: zeros, nonce: nonce) == nil)
        }
        #expect(AES128GCM.seal([], key: [], nonce: nonce) == nil && AES128GCM.seal([], key: zeros, nonce: []) == nil)
    }

    @Test("MD5 gives the results of RFC 1321")
    func md5() {
        #expect(MD5.hex([]) == "d41d8cd98f00b204e9800998ecf8427e")
        #expect(MD5.hex(Array("abc".utf8)) == "900150983cd24fb0d6963f7d28e17f72")
    }
}
