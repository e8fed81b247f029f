internal import Configuration
internal import TextForms
internal import Vendors

/// The proof that receipts for one credential must have.
struct ReceiptAccount: Sendable {
    enum Proof: Sendable {
        /// The last part of the callback's URL.
        case secret(Secret)
        /// Huawei's signature, by the user name and the key from its console.
        case signature(user: String, key: Secret)
    }

    var vendor: Vendor
    /// The credential's name.
    var name: String
    /// The app of the credential; `nil` if it serves several.
    var appID: String?
    var proof: Proof

    /// Verifies and reads receipts; `secret` is the one in the URL, and `header` is the header with the signature.
    func read(_ body: [UInt8], secret: [UInt8], header: String, now: Int64) throws(ReceiptFailure) -> [Receipt] {
        switch proof {
        case .secret(let expected):
            return try Receipts.read(
                vendor, body, proof: .secret(given: secret, expected: expected.bytes), now: now)
        case .signature(let user, let key):
            // New keys of Huawei's console are Base64 of the key, older ones are the key itself.
            if let decoded = Base64.decode(key.bytes, .standard) {
                let proof = ReceiptProof.signature(header: header, user: user, key: decoded)
                do throws(ReceiptFailure) {
                    return try Receipts.read(vendor, body, proof: proof, now: now)
                } catch {
                    guard error == .forged else { throw error }
                }
            }
            return try Receipts.read(
                vendor, body, proof: .signature(header: header, user: user, key: key.bytes), now: now)
        }
    }
}

extension SenderConfigurationReader {
    /// The vendors that send receipts.
    private static let receiptVendors: Set<Vendor> = [.hms, .harmony, .honor, .xiaomi, .oppo, .vivo]

    /// Reads `credentials[].receipts`: `secret`, or for Huawei `user` and `key`.
    mutating func readReceipts(
        _ object: ConfigurationObject, _ vendor: Vendor, _ name: String?, _ apps: [String]
    ) -> ReceiptAccount? {
        defer { object.finish() }
        guard Self.receiptVendors.contains(vendor) else {
            object.report("secret", "not allowed; \(vendor.rawValue) sends no receipts")
            return nil
        }
        var proof: ReceiptAccount.Proof?
        if object.has("user") || object.has("key") || object.has("keyFile") {
            if Receipts.signatureHeader(of: vendor) == nil {
                object.report("user", "not allowed; \(vendor.rawValue) signs nothing, so give secret")
            }
            let user = object.required("user", "1 to 256 visible ASCII characters") {
                SecretReader.isVisible($0, 1...256)
            }
            let key = secrets.read(object, "key", 1...1_024)?.first
            if let user, let key { proof = .signature(user: user, key: key) }
        } else {
            proof = secrets.read(object, "secret", 16...256)?.first.map { .secret($0) }
        }
        guard let name, let proof else { return nil }
        return ReceiptAccount(vendor: vendor, name: name, appID: apps.count == 1 ? apps[0] : nil, proof: proof)
    }
}
