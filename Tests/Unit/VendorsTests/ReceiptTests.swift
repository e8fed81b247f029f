import Cryptography
import Testing
import TextForms

@testable import Vendors

@Suite("Receipts") struct ReceiptTests {
    private let key = Array("receipt-key".utf8)
    private let secret = Array("0123456789abcdef".utf8)
    private let id = Samples.messageID

    private func header(_ milliseconds: Int64, user: String = "user", key: [UInt8]? = nil) -> String {
        let code = HMACSHA256.code(key: key ?? self.key, message: Array("\(milliseconds)nonce-1\(user)".utf8))
        return "timestamp=\(milliseconds); nonce=nonce-1; value=\(Base64.encode(code, .standard))"
    }

    private func huawei(_ header: String, _ body: String, now: Int64 = Samples.now) throws -> [Receipt] {
        try Receipts.read(
            .hms, Array(body.utf8), proof: .signature(header: header, user: "user", key: key), now: now)
    }

    private func read(_ vendor: Vendor, _ body: String) throws -> [Receipt] {
        try Receipts.read(
            vendor, Array(body.utf8), proof: .secret(given: secret, expected: secret), now: Samples.now)
    }

    @Test("receipts of Huawei name the message, and the codes 2 and 5 void the token")
    func huaweiCodes() throws {
        let kinds: [(Int, Receipt.Kind)] = [
            (0, .delivered), (2, .badToken), (5, .badToken), (6, .notShown), (10, .notShown), (15, .notShown),
            (102, .notShown), (201, .notShown),
        ]
        let statuses = kinds.map { code, _ in
            "{\"token\":\"t\",\"biTag\":\"\(id)\",\"requestId\":\"r\",\"status\":\(code)}"
        }
        let receipts = try huawei(
            header(Samples.now * 1_000), "{\"statuses\":[\(statuses.joined(separator: ","))]}")
        #expect(receipts.map(\.kind) == kinds.map(\.1))
        #expect(
            receipts.first
                == Receipt(
                    vendor: .hms, token: "t", messageID: id, vendorID: "r", kind: .delivered, at: 0, reason: "0"))
    }

    @Test("HarmonyOS nests the code")
    func harmony() throws {
        let body =
            "{\"statuses\":[{\"token\":\"t\",\"requestId\":5,\"deliveryStatus\":{\"result\":2}},{\"token\":\"u\"}]}"
        let receipts = try read(.harmony, body)
        #expect(receipts.map(\.kind) == [.badToken] && receipts[0].vendorID == "5" && receipts[0].messageID == nil)
    }

    @Test("a signature with another key, user, time or form is forged")
    func forged() throws {
        let body = "{\"statuses\":[]}"
        let good = header(Samples.now * 1_000)
        #expect(try huawei(good, body).isEmpty)
        #expect(try huawei(good, body, now: Samples.now + 300).isEmpty)
        for bad in [
            "", "timestamp=1", header(Samples.now * 1_000, user: "other"), header(Samples.now * 1_000, key: [1]),
            header((Samples.now - 301) * 1_000), header((Samples.now + 301) * 1_000), header(.min), header(.max),
            good.replacing("nonce-1", with: "nonce-2"), good.replacing("value=", with: "value=A"),
            String(repeating: "timestamp=1;", count: 500),
        ] {
            #expect(throws: ReceiptFailure.forged) { try huawei(bad, body) }
        }
        let proofs: [ReceiptProof] = [
            .secret(given: [], expected: []), .secret(given: Array("x".utf8), expected: secret),
            .secret(given: secret.dropLast(), expected: secret),
            .secret(given: Array("short".utf8), expected: Array("short".utf8)),
            .signature(header: header(Samples.now * 1_000, key: []), user: "user", key: []),
        ]
        for proof in proofs {
            #expect(throws: ReceiptFailure.forged) {
                try Receipts.read(.xiaomi, Array("{}".utf8), proof: proof, now: Samples.now)
            }
        }
    }

    @Test("Xiaomi sends a form whose field data maps its ids to devices")
    func xiaomi() throws {
        let data =
            "{\"m1\":{\"param\":\"\(id)\",\"type\":1,\"targets\":\"a,b\",\"jobkey\":\"\"},"
            + "\"m2\":{\"type\":16,\"targets\":\"c\"},\"m3\":{\"type\":2,\"targets\":\"d\"},"
            + "\"m4\":{\"type\":64,\"targets\":\"e\"}}"
        for body in ["data=" + FormBody.encoded(data), data] {
            let receipts = try read(.xiaomi, body)
            #expect(receipts.map(\.token) == ["a", "b", "c", "d", "e"])
            #expect(receipts.map(\.kind) == [.delivered, .delivered, .badToken, .clicked, .notShown])
            #expect(receipts[0].messageID == id && receipts[0].vendorID == "m1" && receipts[2].messageID == nil)
        }
    }

    @Test("OPPO sends an array of events")
    func oppo() throws {
        let events = ["push_arrive", "push_click", "regid_invalid", "user_daily_limit"].map { event in
            "{\"messageId\":\"o1\",\"taskId\":\"k\",\"registrationIds\":\"a\",\"param\":\"\(id)\",\"eventType\":\"\(event)\"}"
        }
        let receipts = try read(.oppo, "[" + events.joined(separator: ",") + ",{}]")
        #expect(receipts.map(\.kind) == [.delivered, .clicked, .badToken, .notShown])
        #expect(receipts.allSatisfy { $0.messageID == id && $0.vendorID == "o1" })
    }

    @Test("vivo maps its task ids to devices")
    func vivo() throws {
        let receipts = try read(.vivo, "{\"v1\":{\"param\":\"\(id)\",\"targets\":\"a\"},\"v2\":{\"ackType\":1}}")
        #expect(receipts.map(\.kind) == [.delivered, .clicked] && receipts.map(\.token) == ["a", nil])
    }

    @Test("a receipt has the vendor's time, and no token of more than 1,024 bytes")
    func bounds() throws {
        let long = String(repeating: "t", count: 1_025)
        let body =
            "{\"m1\":{\"type\":1,\"targets\":\"\(long),a\",\"timestamp\":\"1700000000123\"},"
            + "\"m2\":{\"type\":1,\"targets\":\"\(long)\"},\"m3\":{\"type\":1,\"timestamp\":7}}"
        let receipts = try read(.xiaomi, body)
        #expect(receipts.map(\.token) == ["a", nil])
        #expect(receipts.map(\.at) == [1_700_000_000_123, 0])
        let statuses =
            "{\"statuses\":[{\"token\":\"\(long)\",\"status\":0},"
            + "{\"token\":\"u\",\"deliveryStatus\":{\"result\":0,\"timestamp\":1700000000123}}]}"
        #expect(try read(.harmony, statuses).map(\.at) == [1_700_000_000_123])
    }

    @Test("an unreadable body and a vendor without receipts are told apart")
    func unreadable() throws {
        for vendor in [Vendor.hms, .harmony, .honor, .xiaomi, .oppo, .vivo] {
            for body in ["", "x", "5", "\"a\"", "{\"statuses\":5", "data=%zz"] {
                #expect(throws: ReceiptFailure.unreadable, "\(vendor) \(body)") { try read(vendor, body) }
            }
        }
        for vendor in [Vendor.fcm, .meizu, .webPush] {
            #expect(throws: ReceiptFailure.unsupported) { try read(vendor, "{}") }
        }
        let many = "{\"m\":{\"type\":1,\"targets\":\"" + String(repeating: "a,", count: 10_001) + "\"}}"
        #expect(throws: ReceiptFailure.unreadable) { try read(.xiaomi, many) }
    }
}
