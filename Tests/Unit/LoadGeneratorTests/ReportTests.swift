import Foundation
import Testing
import TextForms

@testable import LoadGenerator

@Suite("Report and scanners")
struct ReportTests {
    private func report() -> Report {
        var report = Report(title: "live: \"quoted\"")
        report.add("rate", 115_000.4, "messages a second")
        report.add("deliver.p99", 4_250_000, "publish to deliver, p99")
        report.add("rssPerConnection", 297, "memory")
        report.failures = ["Close 401 bad\n": 3]
        report.notes = ["A note."]
        return report
    }

    @Test("the JSON is valid, with numbers in base units and the conditions' verdicts")
    func json() throws {
        let conditions = [
            try Requirement(parsing: "p99<10ms", mode: .live), try Requirement(parsing: "loss=0", mode: .live),
        ]
        let text = report().json(mode: .live, conditions)
        let object = try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        let metrics = try #require(object["metrics"] as? [String: Double])
        #expect(metrics["deliver.p99"] == 4_250_000)
        #expect(metrics["rate"] == 115_000.4)
        #expect((object["failures"] as? [String: Int])?["Close 401 bad\n"] == 3)
        #expect((object["requirements"] as? [[String: Any]])?.map { $0["holds"] as? Bool } == [true, false])
    }

    @Test("the table has readable values, failures, notes and verdicts")
    func table() throws {
        let text = report().table([try Requirement(parsing: "loss=0", mode: .live)])
        for part in ["115,000", "4.25 ms", "297 B", "3 × Close 401", "A note.", "FAILED  loss=0  (not measured)"] {
            #expect(text.contains(part), "\(part)")
        }
    }

    @Test("numbers are rounded, not truncated, and grouped")
    func numbers() {
        #expect(Metric.rounded(1.005, 1) == "1.0")
        #expect(Metric.rounded(0.96, 1) == "1.0")
        #expect(Metric.rounded(2.05, 2) == "2.05")
        #expect(Metric.grouped(1_234_567.6) == "1,234,568")
        #expect(Metric.grouped(-1_000) == "-1,000")
        #expect(Metric.rounded(.nan, 1) == "—")
    }

    @Test("an HTTP answer is found at every split with its parts")
    func httpAnswer() {
        let body = #"{"code":20001,"msg":"target user is invalid"}"#
        let whole = Array(
            "HTTP/1.1 400 Bad Request\r\nDate: x\r\ncontent-LENGTH:  \(body.utf8.count) \r\nConnection: Close\r\n\r\n\(body)tail"
                .utf8)
        for count in 0..<(whole.count - 4) {
            let outcome = Array(whole[..<count]).withUnsafeBytes { HTTPResponseScanner.scan($0) }
            #expect(outcome == .incomplete)
        }
        whole.withUnsafeBytes { bytes in
            guard case .response(let response) = HTTPResponseScanner.scan(bytes) else {
                Issue.record("no answer")
                return
            }
            #expect(response.status == 400)
            #expect(!response.keepsAlive)
            let found = UnsafeRawBufferPointer(rebasing: bytes[response.body])
            #expect(HTTPResponseScanner.code(found) == 20001)
            #expect(HTTPResponseScanner.text("msg", found) == "target user is invalid")
            #expect(HTTPResponseScanner.text("token", found) == nil)
        }
    }

    @Test(
        "an invalid answer is malformed, and not awaited",
        arguments: [
            "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", "SSH-2.0 something else here\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        ])
    func malformedAnswer(text: String) {
        #expect(Array(text.utf8).withUnsafeBytes { HTTPResponseScanner.scan($0) } == .malformed)
    }

    @Test("the push request is JSON of a realistic size with the cid and the request id in their places")
    func requestTemplate() throws {
        let endpoint = Endpoint(address: 0x7F00_0001, port: 7080)
        var credentials = try Credentials(BenchOptions.forTests)
        credentials.appID = "cccccccccccccccccccccccccccccccc"
        credentials.http = endpoint
        var template = HTTPRequestTemplate(credentials, token: "rrrrrrrrrrrrrrrrrrrrrrrr", batch: 1)
        template.fill(0, cidHigh: 0x0123_4567_89AB_CDEF, cidLow: 1, run: 0xAB, mark: 77)
        let text = String(decoding: template.bytes, as: UTF8.self)
        let parts = text.components(separatedBy: "\r\n\r\n")
        #expect(parts[0].hasPrefix("POST /v2/cccccccccccccccccccccccccccccccc/push/single/cid HTTP/1.1\r\n"))
        #expect(parts[0].contains("Content-Length: \(parts[1].utf8.count)"))
        #expect((600...750).contains(parts[1].utf8.count))
        let object = try #require(JSONSerialization.jsonObject(with: Data(parts[1].utf8)) as? [String: Any])
        #expect(object["request_id"] as? String == "000000ab000000000000004d")
        #expect((object["audience"] as? [String: [String]])?["cid"] == ["0123456789abcdef0000000000000001"])
    }

    @Test("/proc is parsed correctly, also with odd command names")
    func proc() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 1"
        #expect(ProcessMeter.cpuTicks(stat: stat) == 200)
        #expect(ProcessMeter.cpuTicks(stat: "nonsense") == nil)
        #expect(ProcessMeter.kilobytes(of: "Pss:", in: "Rss:  9 kB\nPss:   123 kB\n") == 123)
        #expect(ProcessMeter.tcpPages(sockstat: "sockets: used 5\nTCP: inuse 4 orphan 0 tw 0 alloc 5 mem 7\n") == 7)
    }

    @Test("connections to a loopback address use several sources; for others the kernel chooses")
    func sources() {
        let local = Endpoint(address: 0x7F00_0001, port: 1)
        #expect(local.source(of: 0) == 0x7F01_0001)
        #expect(local.source(of: 999) == 0x7F01_0001)
        #expect(local.source(of: 1_000) == 0x7F01_0002)
        #expect(Endpoint(address: 0x0A00_0001, port: 1).source(of: 5_000) == 0)
    }

    @Test("an address is host:port", arguments: ["7000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "h:x"])
    func badAddress(text: String) {
        #expect(throws: CommandFailure.self) { try Endpoint(text, for: "--device-address", schemes: .frames) }
    }
}

@Suite("TLS options")
struct TLSOptionsTests {
    private func credentials(_ words: String...) throws -> Credentials {
        try Credentials(
            BenchOptions(
                parsing: [
                    "live", "--app-id", "a", "--app-secret", "s", "--master-secret", "m", "--data", "/nonexistent",
                ] + words))
    }

    @Test("devices use TLS with --tls, the others by their address; names are kept for the certificate")
    func listeners() throws {
        #expect(try credentials().secureListeners.isEmpty)
        let some = try credentials(
            "--tls", "--device-address", "localhost:1", "--admin-address", "https://127.0.0.1:2/")
        #expect(some.secureListeners == ["devices", "admin listener"])
        #expect(some.device.host == "localhost" && some.device.text == "127.0.0.1:1" && some.admin.port == 2)
        #expect(some.tls != nil)
        let all = try credentials("--device-address", "tls://127.0.0.1:1", "--senders-address", "tls://127.0.0.1:2")
        #expect(all.secureListeners == ["devices", "senders"])
        #expect(try credentials("--http-address", "http://127.0.0.1:3").secureListeners.isEmpty)
    }

    @Test(
        "invalid options are refused in a sentence with the correction",
        arguments: [
            (["--ca", "/dev/null"], "--ca is for TLS; give --tls"), (["--cert", "x"], "--cert is for TLS"),
            (["--tls", "--ca", "/nonexistent"], "--ca names /nonexistent, which cannot be read"),
            (["--tls", "--ca", "/dev/null"], "/dev/null holds no usable PEM"),
            (["--tls", "--key", "/dev/null"], "--key belongs to --cert"),
            (["--http-address", "tls://127.0.0.1:3"], "host:port, or https://host:port"),
            (["--senders-address", "https://127.0.0.1:3"], "host:port, or tls://host:port"),
        ])
    func refused(words: [String], says: String) {
        let error = #expect(throws: CommandFailure.self) {
            try Credentials(
                BenchOptions(
                    parsing: [
                        "live", "--app-id", "a", "--app-secret", "s", "--master-secret", "m", "--data", "/nonexistent",
                    ] + words))
        }
        #expect(error?.description.contains(says) == true, "\(error?.description ?? "")")
    }

    @Test("common mistakes have a hint")
    func hints() throws {
        let plain = try credentials()
        let secure = try credentials("--tls")
        #expect(
            RunHint.text("the gateway closed a device's connection without a Close", plain)?.contains("add --tls")
                == true)
        #expect(
            RunHint.text("TLS handshake of a device: wrong version number", secure)?.contains("may not speak TLS")
                == true)
        #expect(
            RunHint.text("TLS handshake of a device: certificate verify failed: x", secure)?.contains("--ca FILE")
                == true)
        #expect(RunHint.text("publish refused with 6 busy", plain) == nil)
    }
}

extension BenchOptions {
    /// A command line with all credentials.
    static var forTests: BenchOptions {
        get throws {
            try BenchOptions(parsing: [
                "http", "--app-id", "a", "--app-key", "k", "--app-secret", "s", "--master-secret", "m",
                "--data", "/nonexistent",
            ])
        }
    }
}
