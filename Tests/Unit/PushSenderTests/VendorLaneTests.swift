import Testing
import Vendors

@testable import PushSender

@Suite("The rate of a lane's requests") struct RequestPaceTests {
    /// Takes tokens until the rate limit has none left, and returns their number.
    private func drain(_ pace: inout RequestPace) -> Int {
        var count = 0
        while pace.take() { count += 1 }
        return count
    }

    @Test("the bucket bounds the burst and the requests of a second")
    func bound() {
        var pace = RequestPace(requestsPerSecond: 100)
        pace.advance(to: 1_000)
        #expect(drain(&pace) == 20)
        var total = 0
        for step in 1...20 {
            pace.advance(to: 1_000 + UInt64(step) * 50)
            total += drain(&pace)
        }
        #expect((99...100).contains(total))
    }

    @Test("complaints halve the rate once a second, and the rate recovers after the last one")
    func slowed() {
        var pace = RequestPace(requestsPerSecond: 100)
        pace.advance(to: 10_000)
        for _ in 0..<40 { _ = pace.note(isTooFast: true, 10_000) }
        #expect(pace.rate == 50)
        for _ in 0..<20 { _ = pace.note(isTooFast: true, 11_000) }
        #expect(pace.rate == 25)
        pace.advance(to: 15_900)
        #expect(pace.rate == 25)
        for second in 16...70 { pace.advance(to: UInt64(second) * 1_000) }
        #expect(pace.rate == 100)
        #expect(!pace.isSlowed)
    }

    @Test("the complaints about one device among many do not slow down the others")
    func oneDevice() {
        var pace = RequestPace(requestsPerSecond: 1_000)
        for millisecond in 0..<20_000 {
            pace.advance(to: 10_000 + UInt64(millisecond))
            _ = pace.note(isTooFast: millisecond % 11 == 0, 10_000 + UInt64(millisecond))
        }
        #expect(pace.rate == 1_000)
    }

    @Test("the rate never falls below one request a second, or a hundredth of the maximum", arguments: [2, 1_000])
    func lowest(maximum: Int) {
        var pace = RequestPace(requestsPerSecond: maximum)
        for second in 10...80 { _ = pace.note(isTooFast: true, UInt64(second) * 1_000) }
        #expect(pace.rate == max(1, Double(maximum) / 100))
    }
}

@Suite("The access token of a lane") struct VendorTokenTests {
    private let fresh = AccessToken(text: "fresh", renewsAt: 1_000, expiresAt: 1_300)

    @Test("a token is used until it expires, and renewed before that")
    func exchanged() {
        var token = VendorToken(.exchanged)
        #expect(token.bearer(now: 0) { _ in nil } == .awaited)
        #expect(token.mayBegin(0))
        token.begin()
        #expect(!token.mayBegin(0))
        token.succeed(fresh)
        #expect(token.bearer(now: 999) { _ in nil } == .ready("fresh"))
        #expect(!token.isDue(now: 999))
        #expect(token.isDue(now: 1_000))
        #expect(token.bearer(now: 1_299) { _ in nil } == .ready("fresh"))
        #expect(token.bearer(now: 1_300) { _ in nil } == .awaited)
    }

    @Test("only the current token can be refused")
    func refused() {
        var token = VendorToken(.exchanged)
        token.succeed(fresh)
        token.refuse("older")
        #expect(token.bearer(now: 0) { _ in nil } == .ready("fresh"))
        token.refuse("fresh")
        #expect(token.bearer(now: 0) { _ in nil } == .awaited)
    }

    @Test("a failed request is repeated after its pause")
    func failed() {
        var token = VendorToken(.exchanged)
        token.begin()
        token.fail(1_000, milliseconds: 500)
        #expect(!token.mayBegin(1_499))
        #expect(token.mayBegin(1_500))
        #expect(token.failureCount == 1)
    }

    @Test("a signed token is signed once until its renewal")
    func signed() {
        var token = VendorToken(.signed)
        var count = 0
        let sign: (Int64) -> AccessToken? = { now in
            count += 1
            return AccessToken(text: "\(now)", renewsAt: now + 10, expiresAt: now + 20)
        }
        #expect(token.bearer(now: 5, sign: sign) == .ready("5"))
        #expect(token.bearer(now: 14, sign: sign) == .ready("5"))
        #expect(token.bearer(now: 15, sign: sign) == .ready("15"))
        #expect(count == 2)
        var broken = VendorToken(.signed)
        #expect(broken.bearer(now: 0) { _ in nil } == .unsigned)
    }
}

@Suite("The jobs of all channels") struct JobReaderTests {
    private func read(_ job: String) throws -> HandoffJobReader {
        try HandoffJobReader(Array("{\"jobs\":[\(job)]}".utf8), parser: HandoffJobReader.makeParser())
    }

    private func job(_ channel: String, body: String = #"{"transmission":"x"}"#) -> String {
        #"{"channel":"\#(channel)","jobId":"j","leaseId":"l","msgId":"m","taskId":"t","appId":"a","deviceToken":"d","#
            + #""topic":"p","expiration":9,"collapseId":"c","attempt":2,"body":\#(body)}"#
    }

    @Test("each vendor's channel has its jobs", arguments: Vendor.allCases)
    func vendors(vendor: Vendor) throws {
        let reader = try read(job(vendor.rawValue))
        let found = try #require(reader.jobs.first as? VendorJob)
        #expect(found.vendor == vendor)
        #expect((found.message.token, found.message.packageName) == ("d", "p"))
        #expect(found.expiration == 9)
        #expect(found.attempt == 2)
        #expect(reader.channels == [vendor.rawValue])
    }

    @Test("an unreadable content names its field")
    func content() throws {
        let reader = try read(job("fcm", body: #"{"notification":{"title":"x"}}"#))
        #expect(reader.jobs.isEmpty)
        #expect(
            reader.unreadable == [
                UnreadableJob(id: "j", leaseID: "l", field: "notification.body", channel: "fcm")
            ])
    }

    @Test("a job of an unknown channel is kept, so that it can be given back")
    func unknown() throws {
        let reader = try read(job("sms"))
        #expect(reader.jobs.map(\.channel) == ["sms"])
    }
}
