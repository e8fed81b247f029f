import Foundation
import Testing
import Wire

@testable import LoadGenerator

@Suite("Requests and answers")
struct TemplateTests {
    private func credentials() throws -> Credentials {
        try Credentials(
            BenchOptions(parsing: [
                "http", "--app-id", "a", "--app-key", "k", "--app-secret", "s", "--master-secret", "m", "--data",
                "/none",
            ]))
    }

    @Test("a push's body is JSON of its stated length with every placeholder filled", arguments: [1, 2, 200])
    func pushes(batch: Int) throws {
        var template = HTTPRequestTemplate(try credentials(), token: "t", batch: batch)
        for index in 0..<batch {
            template.fill(index, cidHigh: 1, cidLow: UInt64(index), run: 0xABC, mark: 0xF0 << 56 | UInt64(index))
        }
        let text = String(decoding: template.bytes, as: UTF8.self)
        let parts = text.components(separatedBy: "\r\n\r\n")
        #expect(parts.count == 2 && parts[1].utf8.count == template.bodyByteCount)
        #expect(parts[0].contains("Content-Length: \(template.bodyByteCount)"))
        #expect(parts[0].contains(batch > 1 ? "/push/single/batch/cid " : "/push/single/cid "))
        let body = try #require(JSONSerialization.jsonObject(with: Data(parts[1].utf8)) as? [String: Any])
        let list = batch > 1 ? try #require(body["msg_list"] as? [[String: Any]]) : [body]
        #expect(list.count == batch)
        for (index, message) in list.enumerated() {
            let cid = ((message["audience"] as? [String: Any])?["cid"] as? [String])?.first
            #expect(cid == DeviceID(high: 1, low: UInt64(index)).description)
            #expect((message["request_id"] as? String)?.count == 24)
            let payload = Array(
                try #require((message["push_message"] as? [String: Any])?["transmission"] as? String).utf8)
            let mark = payload.withUnsafeBytes { Payload.mark(of: $0) }
            #expect(mark == 0xF0 << 56 | UInt64(index))
        }
        #expect(Set(list.compactMap { $0["request_id"] as? String }).count == batch)
    }

    @Test("a payload that only starts like a push's is read as a number")
    func marks() {
        for text in ["{\"id\":\"x", "{\"id\":\"00000000000000G0\"", "{\"ie\":\"0000000000000001\"", "ABCDEFGHIJ"] {
            let bytes = Array(text.utf8)
            let expected = bytes[..<8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            #expect(bytes.withUnsafeBytes { Payload.mark(of: $0) } == expected)
        }
    }

    @Test("refused messages of a batch are found by their places, and not in its other parts")
    func refused() {
        let body = Array(
            #"{"code":0,"data":{"index":9},"longwire":{"refused":[{"index":3,"code":1,"msg":"x"},{"index":12,"code":1}]}}"#
                .utf8)
        #expect(body.withUnsafeBytes { HTTPResponseScanner.refusedIndexes($0) } == [3, 12])
        #expect(Array(#"{"code":0}"#.utf8).withUnsafeBytes { HTTPResponseScanner.refusedIndexes($0) }.isEmpty)
    }

    @Test("leased jobs are read completely or not at all, at every split")
    func leases() throws {
        let jobs = (1...3).map { number in
            let title = number == 2 ? "Your order" : "\(Payload.alertPrefix)00000000000000a\(number)"
            return
                #"{"jobId":"\#(String(repeating: "\(number)", count: 32))","body":{"aps":{"alert":{"title":"\#(title)"}}},"#
                + #""leaseId":"\#(String(repeating: "f", count: 32))","leasedUntil":5}"#
        }
        let whole = Array(#"{"jobs":[\#(jobs.joined(separator: ","))]}"#.utf8)
        for count in 0...whole.count {
            let marks = Array(whole[..<count]).withUnsafeBytes { bytes in
                var scanner = LeaseScanner(bytes)
                var marks: [UInt64?] = []
                while let job = scanner.next() {
                    #expect(job.jobID.count == 32 && job.leaseID.allSatisfy { $0 == UInt8(ascii: "f") })
                    marks.append(job.mark)
                }
                return marks
            }
            #expect(marks == Array([0xA1, nil, 0xA3].prefix(marks.count)))
            if count == whole.count { #expect(marks.count == 3) }
        }
    }

    @Test("texts are found at any position", arguments: ["abc", "\"jobId\":\"", "x", "Wort"])
    func search(text: String) {
        let pattern = Array(text.utf8)
        for place in 0..<20 {
            var bytes = [UInt8](repeating: UInt8(ascii: "."), count: 20 + pattern.count)
            bytes.replaceSubrange(place..<place + pattern.count, with: pattern)
            let found = bytes.withUnsafeBytes { bytes in
                pattern.withUnsafeBytes { ByteSearch.find($0, in: bytes) }
            }
            #expect(found == place + pattern.count)
            let behind = bytes.withUnsafeBytes { bytes in
                pattern.withUnsafeBytes { ByteSearch.find($0, in: bytes, from: place + 1) }
            }
            #expect(behind == nil)
        }
    }
}
