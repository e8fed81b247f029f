import Cryptography
import Delivery
import Glibc
import PushAPI
import Wire

/// The cost of parsing and validating one `push/single/cid` request: the route, the token, the JSON of 750 bytes, every rule, the
/// APNs body and the message's identity, up to the command for the device's loop.
///
///     swift run -c release longwire-parse-benchmark [ROUNDS]
///
/// Prints nanoseconds of thread CPU time per request, for each round of 200,000 and their median. It also prints the time without
/// the digest of the body, which detects another request under the same id.
@main
struct ParseBenchmark {
    static let count = 200_000

    static func main() {
        let rounds = CommandLine.arguments.count > 1 ? Int(CommandLine.arguments[1]) ?? 7 : 7
        let app = App(
            appID: "demoApp", appKey: "demoKey", appSecrets: ["demoAppSecret"], masterSecrets: ["demoSecret"],
            apnsTopic: "com.example.demo")
        let api = PublicAPI(
            registry: AppRegistry([app]), tokens: TokenAuthority(key: [UInt8](repeating: 7, count: 32)))
        for (name, body) in [("an alert for APNs, too", alertBody), ("a transmission only", transmissionBody)] {
            measure(name, body, api, app, rounds: max(1, rounds))
        }
    }

    private static func measure(_ name: String, _ body: [UInt8], _ api: PublicAPI, _ app: App, rounds: Int) {
        let now: GatewayTime = 1_700_000_000_000
        let token = Array(api.tokens.issue(for: app.key, expiresAt: now + 3_600_000, random: 99).utf8)
        let target = Array("/v2/demoApp/push/single/cid".utf8)
        var whole: [Double] = []
        var digests: [Double] = []
        for _ in 0..<rounds {
            whole.append(
                timed {
                    target.withUnsafeBytes { target in
                        token.withUnsafeBytes { token in
                            body.withUnsafeBytes { body in
                                let request = APIRequest(method: .post, target: target, token: token, body: body)
                                guard case .push = api.handle(request, now: now) else { fatalError("refused") }
                            }
                        }
                    }
                })
            digests.append(timed { _ = body.withUnsafeBytes { SHA256.digest($0).words.0 } })
        }
        let (all, digest) = (median(whole), median(digests))
        let each = whole.map { String(Int($0)) }.joined(separator: " ")
        print("\(body.count) bytes, \(name): \(Int(all)) ns a request, median of \(each)")
        print("    of it the body's SHA-256: \(Int(digest)) ns; without it: \(Int(all - digest)) ns")
    }

    private static func timed(_ work: () -> Void) -> Double {
        let start = nanoseconds()
        for _ in 0..<count { work() }
        return Double(nanoseconds() - start) / Double(count)
    }

    private static func nanoseconds() -> Int64 {
        var time = timespec()
        // CPU time of the thread, so that other processes do not count.
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    private static func median(_ values: [Double]) -> Double { values.sorted()[values.count / 2] }

    private static let opening =
        #"{"request_id":"order-20261121-000042","settings":{"ttl":7200000,"strategy":{"default":1}},"#
        + #""audience":{"cid":["0123456789abcdef0123456789abcdef"]},"push_message":{"transmission":"{\"id\":\"42\","#
        + #"\"type\":\"order.shipped\",\"orderId\":\"SO-20261121-004217\",\"eta\":\"2026-11-24T18:00:00Z\","#
        + #"\"items\":[{\"sku\":\"A-1031\",\"quantity\":2},{\"sku\":\"B-0207\",\"quantity\":1}]"#

    /// A push as an app back end sends it: settings, a transmission with JSON, an alert for APNs.
    private static var alertBody: [UInt8] {
        let text =
            opening + #"}"},"push_channel":{"ios":{"type":"notify","aps":{"alert":{"title":"Your order is on its way","#
            + #""body":"It arrives on Tuesday between 16:00 and 18:00."},"content-available":0,"#
            + #""sound":"default"},"auto_badge":"+1","payload":"{\"orderId\":\"SO-20261121-004217\",\"from\":"#
            + #"\"warehouse 7, Hamburg, gate 12; picked by the night shift, packed by the day shift, weighed twice\"}"}}}"#
        return Array(text.utf8)
    }

    /// The same without vendor content, with equal length.
    private static var transmissionBody: [UInt8] {
        let closing = #"\"}"}}"#
        let note = String(repeating: "x", count: alertBody.count - opening.utf8.count - 9 - 5 - closing.utf8.count)
        return Array((opening + #",\"note\":\""# + note + closing).utf8)
    }
}
