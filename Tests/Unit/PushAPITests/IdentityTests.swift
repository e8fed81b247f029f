import Cryptography
import Delivery
import Testing
import Wire

@testable import PushAPI

/// The expected words were computed with Python's hashlib.
@Suite("Identity")
struct IdentityTests {
    @Test("an app's key is the start of its id's digest")
    func appKey() {
        #expect(AppKey(appID: "demoApp").word == 0xF570_F4C4_13C0_12AF)
    }

    @Test("a device's bucket is the first 12 bits of SHA-256(appId, 0, cid in hex)")
    func bucket() {
        #expect(Bucket(appID: "demoApp", cid: Fixture.cid).index == 0x4F7)
        #expect(Fixture().app.bucket(of: Fixture.cid).index == 0x4F7)
    }

    @Test("a message's digest is the start of SHA-256(task, cid)")
    func digest() {
        let task = TaskID(high: 0x010B_1500_A1B2_C3D4, low: 0xA1B2_C3D4_A1B2_C3D4)
        #expect(messageDigest(of: task, for: Fixture.cid) == 0x1098_5421_CF99_EDE2)
    }

    @Test("a single push's task is derived from its request, its device's bucket and the day")
    func singleTask() {
        let request: (UInt64, UInt64) = (0xFEED_FACE_CAFE_BEEF, 0x1234_5678_9ABC_DEF0)
        let task = TaskID(now: 1_795_000_000_000, home: Bucket(0x4F7), request: request)
        #expect(task == TaskID(high: 0x010B_1200_4F7E_BEEF, low: 0x1234_5678_9ABC_DEF0))
        #expect(task.home == Bucket(0x4F7) && task.kind == .single)
        #expect(TaskID(now: 1_795_000_000_001, home: Bucket(0x4F7), request: request) == task)
        #expect(TaskID(now: 1_795_000_000_000, home: Bucket(0x4F8), request: request) != task)
        #expect(TaskID(now: 1_795_086_400_000, home: Bucket(0x4F7), request: request) != task)
    }

    @Test(
        "a task is dated in UTC",
        arguments: [
            (0, 1, 1), (951_782_400_000, 2, 29), (1_709_164_800_000, 2, 29), (1_700_000_000_000, 11, 14),
            (1_795_255_255_000, 11, 21), (4_102_444_799_000, 12, 31),
        ] as [(Int64, Int, Int)])
    func dates(time: Int64, month: Int, day: Int) {
        let task = TaskID(kind: .single, now: time, request: (1, 2))
        #expect(Int(task.high >> 48 & 0xFF) == month && Int(task.high >> 40 & 0xFF) == day)
    }

    @Test("request keys differ by app, endpoint and id")
    func requestKeys() {
        func key(_ app: UInt64, _ endpoint: StaticString, _ id: String) -> UInt64 {
            Array(id.utf8).withUnsafeBytes { requestKey(app: AppKey(app), endpoint: endpoint, requestID: $0).0 }
        }
        let keys: Set = [key(1, "a", "x"), key(2, "a", "x"), key(1, "b", "x"), key(1, "a", "y"), key(1, "ax", "")]
        #expect(keys.count == 5)
    }
}

@Suite("Tokens")
struct TokenTests {
    private let key = AppKey(42)
    private let authority = TokenAuthority(key: [UInt8](repeating: 1, count: 32))

    private func token(_ authority: TokenAuthority, expiresAt: GatewayTime = 1_000) throws -> TokenAuthority.Parsed {
        try #require(TokenAuthority.Parsed(Array(authority.issue(for: key, expiresAt: expiresAt, random: 5).utf8)))
    }

    @Test("a token contains its app and its expiry, and only its issuer's key verifies it")
    func issue() throws {
        let token = try token(authority)
        #expect(token.app == key)
        #expect(token.id == TokenID(expiresAt: 1_000, random: 5))
        #expect(authority.isAuthentic(token))
        #expect(!TokenAuthority(key: [UInt8](repeating: 2, count: 32)).isAuthentic(token))
    }

    @Test("every changed character invalidates a token")
    func tampering() {
        let text = Array(authority.issue(for: key, expiresAt: 1_000, random: 5).utf8)
        for place in text.indices {
            var changed = text
            changed[place] = changed[place] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
            let parsed = TokenAuthority.Parsed(changed)
            #expect(parsed.map(authority.isAuthentic) != true)
        }
    }

    @Test("a token ends at its expiry or when it is revoked")
    func end() throws {
        var authority = authority
        let token = try token(authority)
        #expect(authority.isInForce(token, now: 999))
        #expect(!authority.isInForce(token, now: 1_000))
        authority.revoke(token.id)
        #expect(!authority.isInForce(token, now: 1))
    }

    @Test("void tokens are dropped after their hour, a few at a time, and no others")
    func forgotten() {
        var authority = authority
        let hour: Int64 = 3_600_000
        for number in 0..<10 as Range<UInt64> {
            authority.revoke(TokenID(expiresAt: hour + Int64(number), random: number))
            authority.revoke(TokenID(expiresAt: 3 * hour, random: number))
        }
        authority.revoke(TokenID(expiresAt: 3 * hour, random: 9))
        #expect(authority.revokedTokens.count == 20)
        // They have expired, but their hour is not over.
        #expect(!authority.hasExpired(now: 2 * hour - 1))
        let none = authority.forgetExpired(now: 2 * hour - 1, limit: 99)
        #expect(none.isEmpty)
        #expect(authority.hasExpired(now: 2 * hour))
        let first = authority.forgetExpired(now: 2 * hour, limit: 4)
        let rest = authority.forgetExpired(now: 2 * hour, limit: 99)
        #expect(first.count == 4 && Set(first + rest).count == 10)
        #expect((first + rest).allSatisfy { $0.expiresAt < 2 * hour })
        #expect(!authority.hasExpired(now: 2 * hour) && authority.revokedTokens.count == 10)
        #expect(authority.revokedTokens.all.allSatisfy { $0.expiresAt == 3 * hour })
    }

    @Test("an app voids a bounded number of tokens until they expire, independent of other apps")
    func bounded() {
        var book = RevocationLimits()
        let hour: Int64 = 3_600_000
        func take(_ expiresAt: GatewayTime, _ random: Int, of app: AppKey, now: GatewayTime) -> Bool {
            book.take(TokenID(expiresAt: expiresAt, random: UInt64(random)), of: app, now: now)
        }
        for number in 0..<Limits.revokedTokensOfApp { #expect(take(hour, number, of: key, now: 0)) }
        #expect(!take(2 * hour, 1, of: key, now: hour))
        #expect(take(2 * hour, 1, of: AppKey(43), now: hour))
        #expect(take(2 * hour, 1, of: key, now: 2 * hour), "the hour of the others is over")
        for number in 0..<Limits.revokedTokensOfApp {
            let token = TokenID(expiresAt: 3 * hour, random: UInt64(number))
            #expect(take(3 * hour, number, of: AppKey(44), now: 0))
            book.giveBack(token, of: AppKey(44))
        }
        #expect(take(3 * hour, 0, of: AppKey(44), now: 0), "what was given back is free")
    }
}
