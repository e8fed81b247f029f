import Testing

@testable import PushSender

@Suite("Expiry of the certificates in use")
struct CertificateEndsTests {
    private static let day: Int64 = 86_400
    private static let now = 20_000 * day

    private static func end(_ file: String, _ names: [String], in seconds: Int64) -> CertificateEnds.End {
        CertificateEnds.End(identity: file, names: names, time: now + seconds)
    }

    @Test("one line a day names all uses of a certificate")
    func names() {
        var ends = CertificateEnds(
            ends: [
                Self.end("a.pem", ["admin", "hook"], in: 2 * Self.day),
                Self.end("b.pem", ["credential b"], in: 90 * Self.day),
                Self.end("c.pem", ["credential c"], in: -3_600),
            ], warning: 14 * Self.day)
        let advice = "put the new files in place and send SIGHUP"
        #expect(
            ends.news(now: Self.now) == [
                "admin, hook: the certificate ends in 2 days and 0 hours; \(advice)",
                "credential c: the certificate ended 0 days and 1 hours ago; \(advice)",
            ])
        #expect(ends.news(now: Self.now + Self.day - 1).isEmpty)
        #expect(ends.news(now: Self.now + Self.day).count == 2)
    }

    @Test("a reload logs new certificates only, and not those already logged")
    func reload() {
        var ends = CertificateEnds(ends: [Self.end("a.pem", ["admin"], in: Self.day)], warning: 14 * Self.day)
        #expect(ends.news(now: Self.now).count == 1)
        ends.replace(
            with: CertificateEnds(
                ends: [
                    Self.end("a.pem", ["admin", "hook"], in: Self.day),
                    Self.end("b.pem", ["credential b"], in: Self.day),
                ], warning: 14 * Self.day))
        let news = ends.news(now: Self.now + 1)
        #expect(news.count == 1 && news.first?.hasPrefix("credential b: ") == true)
        // Removed and added again, so it is logged again.
        ends.replace(with: CertificateEnds(warning: 14 * Self.day))
        ends.replace(with: CertificateEnds(ends: [Self.end("a.pem", ["admin"], in: Self.day)], warning: 14 * Self.day))
        #expect(ends.news(now: Self.now + 2).count == 1)
    }

    @Test("an expired certificate is logged at the start, and then once a day")
    func ended() {
        var ends = CertificateEnds(
            ends: [Self.end("a.pem", ["admin"], in: 0), Self.end("b.pem", ["hook"], in: 1)], warning: 14 * Self.day)
        ends.noteEnded(now: Self.now)
        let news = ends.news(now: Self.now)
        #expect(news.count == 1 && news.first?.hasPrefix("hook: ") == true)
        #expect(ends.news(now: Self.now + Self.day).count == 2)
    }
}
