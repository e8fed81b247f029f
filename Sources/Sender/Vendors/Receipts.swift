internal import Cryptography
internal import JSON
internal import TextForms

/// A vendor's report about a message.
package struct Receipt: Sendable, Equatable {
    package enum Kind: Sendable, Equatable {
        case delivered, clicked
        /// The token is unknown to the device or the vendor.
        case badToken
        /// The device or the vendor discarded the notification.
        case notShown
    }

    package var vendor: Vendor
    /// The device token; `nil` if the vendor names none.
    package var token: String?
    /// The message id that the request carried as `callback.param` or `biTag`; `nil` if the receipt has none.
    package var messageID: String?
    /// The vendor's own id: `requestId`, `taskId` or the message id of Xiaomi and OPPO.
    package var vendorID: String
    package var kind: Kind
    /// The vendor's time in Unix milliseconds; 0 if the receipt has none.
    package var at: Int64
    /// The vendor's code, as visible ASCII of at most 64 bytes.
    package var reason: String
}

/// The evidence that a receipt comes from the vendor.
package enum ReceiptProof: Sendable {
    /// The header `X-HUAWEI-CALLBACK-ID`, with user name and key from the vendor's console.
    case signature(header: String, user: String, key: [UInt8])
    /// A secret in the callback's URL, for vendors that sign nothing.
    case secret(given: [UInt8], expected: [UInt8])
}

package enum ReceiptFailure: Error, Sendable, Equatable {
    /// The proof is missing, wrong or too old.
    case forged
    case unreadable
    /// The vendor sends no receipts.
    case unsupported
}

package enum Receipts {
    package static let bodyByteCount = 1 << 20
    package static let receiptCount = 10_000
    /// The maximum bytes of a device token; the gateway accepts no longer ones.
    package static let tokenByteCount = 1_024
    /// The maximum age of a signed receipt, which limits replays.
    package static let signatureSeconds: Int64 = 300

    /// The header with the signature; `nil` for vendors that need a secret in the callback's URL.
    package static func signatureHeader(of vendor: Vendor) -> String? {
        switch vendor {
        case .hms, .harmony: "X-HUAWEI-CALLBACK-ID"
        default: nil
        }
    }

    /// The answer that the vendor expects after all receipts were processed.
    package static let answer = Array("{\"code\":\"0\",\"message\":\"success\"}".utf8)

    /// Verifies and reads the receipts in a request's body; `now` is the wall clock in Unix seconds.
    package static func read(
        _ vendor: Vendor, _ body: [UInt8], proof: ReceiptProof, now: Int64
    ) throws(ReceiptFailure) -> [Receipt] {
        guard isProven(proof, vendor: vendor, now: now) else { throw .forged }
        guard body.count <= bodyByteCount else { throw .unreadable }
        let receipts: [Receipt]?
        switch vendor {
        case .hms, .harmony, .honor:
            receipts = parse(body) { HuaweiReceipts.read($0, vendor) }
        case .xiaomi:
            let data = FormBody(parsing: body, limit: 8)?["data"].map { Array($0.utf8) } ?? body
            receipts = parse(data) { KeyedReceipts.read($0, .xiaomi) }
        case .vivo: receipts = parse(body) { KeyedReceipts.read($0, .vivo) }
        case .oppo: receipts = parse(body) { OPPOReceipts.read($0) }
        case .fcm, .meizu, .webPush: throw .unsupported
        }
        guard let receipts, receipts.count <= receiptCount else { throw .unreadable }
        return receipts
    }

    /// Returns the part of a signature header that is different for each genuine call.
    package static func uniquePart(ofSignature header: String) -> String? {
        let parts = parts(ofSignature: header)
        guard let timestamp = parts["timestamp"], let nonce = parts["nonce"] else { return nil }
        return timestamp + nonce
    }

    private static func parts(ofSignature header: String) -> [String: String] {
        var parts: [String: String] = [:]
        for part in header.split(separator: ";") {
            let pair = part.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            if pair.count == 2 { parts[String(pair[0])] = String(pair[1]) }
        }
        return parts
    }

    private static func parse(_ bytes: [UInt8], _ body: (JSONValue) -> [Receipt]?) -> [Receipt]? {
        JSONTree.parsing(bytes, byteLimit: bodyByteCount, body)
    }

    private static func isProven(_ proof: ReceiptProof, vendor: Vendor, now: Int64) -> Bool {
        switch proof {
        case .secret(let given, let expected):
            return expected.count >= 16 && constantTimeEquals(given, expected)
        case .signature(let header, let user, let key):
            guard !key.isEmpty, header.utf8.count <= 1_024 else { return false }
            let parts = parts(ofSignature: header)
            guard let timestamp = parts["timestamp"], let nonce = parts["nonce"], let milliseconds = Int64(timestamp),
                let code = parts["value"].flatMap({ Base64.decode($0.utf8, .standard) })
            else { return false }
            let (age, overflows) = (milliseconds / 1_000).subtractingReportingOverflow(now)
            guard !overflows, (-signatureSeconds...signatureSeconds).contains(age) else { return false }
            return HMACSHA256.isCode(code, of: Array((timestamp + nonce + user).utf8), key: key)
        }
    }
}
