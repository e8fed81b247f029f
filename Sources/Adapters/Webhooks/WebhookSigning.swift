// Signatures of Standard Webhooks 1.0 (standardwebhooks.com): `v1,` and the base64 of HMAC-SHA256(secret, id ‖ "." ‖ timestamp in
// seconds ‖ "." ‖ body).

internal import Cryptography
internal import TextForms

/// The key shared with the sender service, written as `whsec_` and base64.
package struct HookSecret: Sendable {
    /// The key of the HMAC, 24 to 64 bytes.
    package let key: [UInt8]

    /// Fails unless the text is `whsec_` and the base64 of 24 to 64 bytes; missing padding is accepted.
    package init?(_ text: String) {
        let prefix = "whsec_"
        guard text.hasPrefix(prefix) else { return nil }
        var digits = Array(text.utf8.dropFirst(prefix.utf8.count))
        if digits.last != UInt8(ascii: "=") {
            while digits.count % 4 != 0 { digits.append(UInt8(ascii: "=")) }
        }
        guard let key = Base64.decode(digits, .standard), (24...64).contains(key.count) else { return nil }
        self.key = key
    }

    package func signature(id: String, timestamp: Int64, body: [UInt8]) -> String {
        let signed = Array("\(id).\(timestamp).".utf8) + body
        return "v1," + Base64.encode(HMACSHA256.code(key: key, message: signed), .standard)
    }
}

/// The headers of a webhook request, signed with each active secret.
package enum WebhookHeaders {
    package static func make(
        id: String, body: [UInt8], keys: [HookSecret], unixSeconds: Int64
    ) -> [(name: String, value: String)] {
        // Several signatures, separated by spaces, let the receiver change its secret at any time.
        let signatures = keys.map { $0.signature(id: id, timestamp: unixSeconds, body: body) }
        return [
            ("content-type", "application/json;charset=utf-8"), ("webhook-id", id),
            ("webhook-timestamp", String(unixSeconds)), ("webhook-signature", signatures.joined(separator: " ")),
        ]
    }
}
