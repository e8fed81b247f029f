import Cryptography
import Testing

@Suite("Expiry of listener certificates")
struct ExpiryWatchTests {
    private let day: Int64 = 86_400

    @Test("an expiry within two weeks is reported daily per listener, and a renewed certificate is not")
    func news() {
        var watch = ExpiryWatch()
        func isNews(_ listener: String, _ end: Int64, _ now: Int64) -> Bool {
            watch.isNews(listener, end: end, now: now, warning: 14 * day)
        }
        let end = 1_000_000 * day
        #expect(!isNews("device", end, end - 14 * day))
        #expect(isNews("device", end, end - 14 * day + 1))
        #expect(isNews("http", end, end - 14 * day + 1))
        #expect(!isNews("device", end, end - 13 * day))
        #expect(isNews("device", end, end - 13 * day + 1))
        #expect(!isNews("device", end + 90 * day, end - 13 * day + 2))
        #expect(isNews("device", end, end - 13 * day + 3), "told anew after a renewal")
        #expect(isNews("device", end, end + day))
    }
}
