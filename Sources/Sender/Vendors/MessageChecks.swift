internal import TextForms
internal import Wire

/// Checks a message against a vendor's documented limits.
///
/// A violation is refused, because vendors cut texts or drop messages silently.
struct MessageChecks {
    let vendor: Vendor
    private var facts: VendorFacts { vendor.facts }

    init(_ vendor: Vendor) { self.vendor = vendor }

    func refusal(_ reason: String, _ advice: String) -> VendorRefusal { VendorRefusal(vendor, reason, advice) }

    /// Checks a device token; separators in a form field would address several devices.
    func token(_ token: String) throws(VendorRefusal) {
        guard (1...facts.tokenByteCount).contains(token.utf8.count),
            token.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: ",") && $0 != UInt8(ascii: ";") })
        else {
            throw VendorRefusal(
                vendor, "BadToken",
                "the token must be 1 to \(facts.tokenByteCount) visible ASCII characters without , and ;",
                isTokenFault: true)
        }
    }

    /// Checks a package name; a comma would name several packages.
    func packageName(_ name: String) throws(VendorRefusal) {
        guard name.utf8.count <= 255, name.isPlain(with: "._-") else {
            throw refusal("BadPackageName", "the package name must have at most 255 letters, digits, ., _ or -")
        }
    }

    func bearer(_ bearer: String?) throws(VendorRefusal) -> String {
        guard let bearer, !bearer.isEmpty else { throw refusal("MissingAccessToken", "no access token was passed") }
        return bearer
    }

    /// - Returns: the lifetime in seconds, shortened to the vendor's maximum and lengthened to its minimum.
    func secondsToLive(_ message: VendorMessage) -> Int64 {
        min(max(message.secondsToLive, facts.secondsToLive.lowerBound), facts.secondsToLive.upperBound)
    }

    func titles(_ notice: PushContent.Notice) throws(VendorRefusal) {
        try length(notice.title, field: "title", limit: vendor.limits.titleLength, reason: "TitleTooLong")
        try length(notice.body, field: "body", limit: vendor.limits.bodyLength, reason: "BodyTooLong")
    }

    /// Checks a text's length in UTF-16 code units; 0 means no limit.
    func length(_ text: String, field: String, limit: Int, reason: String) throws(VendorRefusal) {
        guard limit > 0, text.utf16.count > limit else { return }
        throw refusal(reason, "\(field) has \(text.utf16.count) characters; the limit is \(limit)")
    }

    func byteCount(_ count: Int, of field: String, limit: Int? = nil) throws(VendorRefusal) {
        let limit = limit ?? vendor.limits.contentByteCount
        guard count > limit else { return }
        throw refusal("MessageTooLarge", "\(field) has \(count) bytes; the limit is \(limit)")
    }

    /// Checks a web address that a tap opens.
    func url(_ text: String, limit: Int = 2_048) throws(VendorRefusal) {
        let lower = text.prefix(8).lowercased()
        guard text.utf8.count <= limit, lower.hasPrefix("https://") || lower.hasPrefix("http://"),
            text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F })
        else { throw refusal("BadURL", "url must begin with http:// or https:// and have at most \(limit) bytes") }
    }

    /// Applies the publisher's options; a pointer at, above or below a protected member is refused.
    func apply(
        _ options: [PushContent.Option], to tree: inout JSONTree, protected: [[String]]
    ) throws(VendorRefusal) {
        for option in options {
            guard !protected.contains(where: { option.pointer.overlaps($0) }) else {
                throw refusal("ProtectedOption", "options must not set \(shown(option.pointer))")
            }
            guard tree.set(option.value, at: option.pointer.tokens[...]) else {
                throw refusal("BadOption", "options: \(shown(option.pointer)) points into a value that is no object")
            }
        }
    }

    /// Applies the publisher's options to a form; each pointer names one field.
    func apply(_ options: [PushContent.Option], to form: inout FormBody, protected: Set<String>) throws(VendorRefusal) {
        for option in options {
            guard option.pointer.tokens.count == 1, let name = option.pointer.tokens.first,
                name.isPlain(with: "._-"), let text = option.value.scalarText
            else {
                throw refusal(
                    "BadOption", "options: \(shown(option.pointer)) must name one form field with a text or number")
            }
            guard !protected.contains(name) else {
                throw refusal("ProtectedOption", "options must not set \(shown(option.pointer))")
            }
            form.set(name, text)
        }
    }

    private func shown(_ pointer: JSONPointer) -> String {
        PeerText.bounded("/" + pointer.tokens.joined(separator: "/"))
    }
}

/// A form body in `application/x-www-form-urlencoded`.
struct FormBody: Equatable {
    private(set) var fields: [(name: String, value: String)] = []

    init(_ fields: KeyValuePairs<String, String?>) {
        for (name, value) in fields { if let value { set(name, value) } }
    }

    subscript(name: String) -> String? { fields.first { $0.name == name }?.value }

    mutating func set(_ name: String, _ value: String) {
        if let place = fields.firstIndex(where: { $0.name == name }) {
            fields[place].value = value
        } else {
            fields.append((name, value))
        }
    }

    static func == (left: FormBody, right: FormBody) -> Bool { left.bytes == right.bytes }

    var bytes: [UInt8] {
        Array(fields.map { Self.encoded($0.name) + "=" + Self.encoded($0.value) }.joined(separator: "&").utf8)
    }

    /// Percent-encodes all bytes but the unreserved characters of RFC 3986.
    static func encoded(_ text: String) -> String {
        var output: [UInt8] = []
        for byte in text.utf8 {
            if byte.isDigit || byte.isLetter || "-._~".utf8.contains(byte) {
                output.append(byte)
            } else {
                output.append(UInt8(ascii: "%"))
                output.append(contentsOf: (byte < 16 ? "0" : "").utf8)
                output.append(contentsOf: String(byte, radix: 16, uppercase: true).utf8)
            }
        }
        return String(decoding: output, as: UTF8.self)
    }

    /// Decodes a received form; the result is `nil` for a malformed percent sequence or more than `limit` fields.
    init?(parsing bytes: [UInt8], limit: Int = 64) {
        for part in bytes.split(separator: UInt8(ascii: "&")) {
            let pair = part.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            guard fields.count < limit, let name = Self.decoded(pair[0]),
                let value = pair.count > 1 ? Self.decoded(pair[1]) : ""
            else { return nil }
            fields.append((name, value))
        }
    }

    private static func decoded(_ bytes: ArraySlice<UInt8>) -> String? {
        bytes.map { $0 == UInt8(ascii: "+") ? 0x20 : $0 }.percentDecoded().map { String(decoding: $0, as: UTF8.self) }
    }
}

/// Reduces a peer's text to visible ASCII of at most 64 bytes, so that it can appear in logs, metrics and results.
enum PeerText {
    static let byteCount = 64

    static func bounded(_ text: String) -> String {
        let visible = text.utf8.prefix(byteCount).map { byte in
            (0x21...0x7E).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
                ? byte : UInt8(ascii: "_")
        }
        return String(decoding: visible, as: UTF8.self)
    }

    /// Joins a vendor's code and an optional word to one identifier.
    static func reason(_ code: String, _ detail: String = "") -> String {
        bounded(detail.isEmpty ? code : code + ":" + detail)
    }
}
