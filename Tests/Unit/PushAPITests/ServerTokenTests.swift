import Cryptography
import Delivery
import TextForms
import Testing
import Wire

@testable import PushAPI

@Suite("Tokens that an app's server signs for its devices")
struct ServerTokenTests {
    private static let now: GatewayTime = 1_800_000_000_000
    private static let secret = "0123456789abcdef0123456789abcdef"
    private static let good = #"{"aud":"shop","exp":1800000600,"sub":"user_1"}"#

    private static func app(_ secrets: [String] = [secret], keys: [RSAPublicKey] = []) -> App {
        var app = App(appID: "shop", appKey: "key", appSecrets: ["app-secret"], masterSecrets: secrets)
        app.tokenKeys = keys
        return app
    }

    private static func token(
        _ claims: String = good, header: String = #"{"alg":"HS256","typ":"JWT"}"#, key: String = secret
    ) -> String {
        let message = Base64.encode(header.utf8, .url) + "." + Base64.encode(claims.utf8, .url)
        let code = HMACSHA256.code(key: Array(key.utf8), message: Array(message.utf8))
        return message + "." + Base64.encode(code, .url)
    }

    private func fault(_ text: String, _ app: App = app()) -> String? {
        do throws(ServerToken.Fault) {
            _ = try ServerToken(text, app: app, now: Self.now)
            return nil
        } catch {
            return "\(error.reason)"
        }
    }

    @Test("a token of each valid masterSecret names an alias and its type")
    func valid() throws {
        let app = Self.app(["another-secret-of-32-characters-x", Self.secret])
        let token = try ServerToken(Self.token(), app: app, now: Self.now)
        #expect((token.alias, token.aliasType) == ("user_1", ""))
        let claims = #"{"aud":["a","shop"],"exp":1800000600,"nbf":1799999999,"sub":"x","alias_type":"phone"}"#
        let typed = try ServerToken(Self.token(claims), app: app, now: Self.now)
        #expect((typed.alias, typed.aliasType) == ("x", "phone"))
        #expect(try ServerToken(Self.token(#"{"aud":"shop","exp":1800000600}"#), app: app, now: Self.now).alias == "")
    }

    @Test(
        "each claim is checked",
        arguments: [
            (#"{"exp":1800000600}"#, "aud"), (#"{"aud":"other","exp":1800000600}"#, "aud"),
            (#"{"aud":["other"],"exp":1800000600}"#, "aud"), (#"{"aud":"shop"}"#, "exp"),
            (#"{"aud":"shop","exp":"1800000600"}"#, "exp"), (#"{"aud":"shop","exp":9223372036854775807}"#, "exp"),
            (#"{"aud":"shop","exp":-1}"#, "exp"), (#"{"aud":"shop","exp":1799999939}"#, "expired"),
            (#"{"aud":"shop","exp":1800000600,"nbf":1800000061}"#, "not valid yet"),
            (#"{"aud":"shop","exp":1800000600,"nbf":"x"}"#, "nbf"),
            (#"{"aud":"shop","exp":1800000600,"sub":7}"#, "sub"),
            (#"{"aud":"shop","exp":1800000600,"sub":"x","alias_type":7}"#, "alias_type"), ("[]", "claims"),
            ("{", "claims"),
        ])
    func claims(text: String, word: String) throws {
        #expect(try #require(fault(Self.token(text))).contains(word))
    }

    @Test("a minute of difference between the clocks is tolerated")
    func tolerance() {
        #expect(fault(Self.token(#"{"aud":"shop","exp":1799999941}"#)) == nil)
        #expect(fault(Self.token(#"{"aud":"shop","exp":1800000600,"nbf":1800000060}"#)) == nil)
    }

    @Test("a wrong key, a short secret and a changed text are refused")
    func signatures() {
        #expect(fault(Self.token(key: "x" + Self.secret)) != nil)
        #expect(fault(Self.token(key: "short"), Self.app(["short"])) != nil)
        let parts = Self.token().split(separator: ".")
        let other = Self.token(#"{"aud":"shop","exp":1800000600,"sub":"user_2"}"#).split(separator: ".")
        #expect(fault("\(parts[0]).\(other[1]).\(parts[2])") != nil)
        for text in [
            "", ".", "..", "a.b", "a.b.c.d", "\(parts[0]).\(parts[1]).", String(repeating: "a.", count: 2_000),
        ] {
            #expect(fault(text) != nil)
        }
    }

    @Test("an algorithm without a key of its kind is refused, and a public key is no secret")
    func algorithms() throws {
        for algorithm in [#""none""#, #""HS512""#, #""ES256""#, #""hs256""#, "1", "null"] {
            #expect(fault(Self.token(header: #"{"alg":\#(algorithm)}"#)) != nil)
        }
        #expect(fault(Self.token(header: #"{"alg":"HS256","crit":["exp"],"exp":1}"#)) != nil)
        let (key, pem) = try Self.pair()
        let app = Self.app(keys: [try RSAPublicKey(pem: Array(pem.utf8))])
        // The public key is misused as an HS256 secret, and an HMAC is sent under the header of RS256.
        #expect(fault(Self.token(key: pem), app) != nil)
        #expect(fault(Self.token(header: #"{"alg":"RS256"}"#, key: pem), app) != nil)
        let message =
            Base64.encode(#"{"alg":"RS256"}"#.utf8, .url) + "." + Base64.encode(Self.good.utf8, .url)
        let signature = try #require(key.sign(Array(message.utf8), .rs256))
        let token = message + "." + Base64.encode(signature, .url)
        #expect(fault(token, app) == nil)
        #expect(fault(token) != nil)
        let (other, _) = try Self.pair()
        let forged = try #require(other.sign(Array(message.utf8), .rs256))
        #expect(fault(message + "." + Base64.encode(forged, .url), app) != nil)
    }

    private static func pair() throws -> (RSASigningKey, String) {
        let key = try RSASigningKey(pem: try RSASigningKey.makePEM(), name: "a key")
        return (key, String(decoding: try #require(key.publicPEM), as: UTF8.self))
    }

    @Test("a key of another kind or size is refused")
    func keys() throws {
        #expect(throws: TLSFailure.self) { try RSAPublicKey(pem: []) }
        #expect(throws: TLSFailure.self) { try RSAPublicKey(pem: try RSASigningKey.makePEM()) }
        // The first key is a P-256 key, the second an RSA key of 1,024 bits. Both are public keys.
        let others = [
            """
            -----BEGIN PUBLIC KEY-----
            MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhL6OBbiMjizFTrvKBHmw/cojEE/+
            rw4M7qMRZL+Bsh1huvLX8sTurnY7tw91f8GLNPbIsiSmTH/MHQd6RcSlFA==
            -----END PUBLIC KEY-----
            """,
            """
            -----BEGIN PUBLIC KEY-----
            MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC88Ripvrd9qPCba/BbSoOc4tEK
            xW6dqa6+MeLcva1KdMyRvoJOPWU8ZNhHH/pHzAWvo2QGH/lJdVWNnUvC/vUnMUYZ
            Sna7rS4AHsouY3taWHpsgR/pjYn/OaeeeIugsAYer1OiDNQcIGExkUsnk9LhyNl8
            N4KtCg7u4zunXen7YwIDAQAB
            -----END PUBLIC KEY-----
            """,
        ]
        for pem in others { #expect(throws: TLSFailure.self) { try RSAPublicKey(pem: Array(pem.utf8)) } }
    }
}
