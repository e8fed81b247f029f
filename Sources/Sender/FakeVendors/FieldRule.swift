internal import Configuration
internal import JSON
internal import TextForms

/// A rule about one field of a request, with the vendor's code for its violation.
struct FieldRule {
    enum Form {
        /// A text; the range is its length in UTF-16 units.
        case text(ClosedRange<Int>)
        case integer(ClosedRange<Int64>)
        /// An integer as text, as in forms.
        case digits(ClosedRange<Int64>)
        /// A duration such as `3600s`.
        case seconds(ClosedRange<Int64>)
        case among(String)
        case flag
        /// An object with these members only; empty for any.
        case object(String)
        /// An object with texts only, without the names that FCM reserves.
        case data
        /// A text with a JSON object.
        case json
        case url(String)
        /// An array of 1 to 1,000 texts.
        case tokens
        /// An object with at least one of these members.
        case anyOf(String)
    }

    /// The names from the root, separated by slashes; empty for the root.
    let path: String
    let form: Form
    let code: String
    /// The code for an absent field, or `nil` for an optional field.
    let missing: String?
    /// The condition of the rule, or `nil`: a field and the text that it must have.
    let condition: (path: String, text: String)?

    init(_ path: String, _ form: Form, _ code: String, missing: String? = nil, when: (String, String)? = nil) {
        (self.path, self.form, self.code, self.missing) = (path, form, code, missing)
        condition = when.map { (path: $0.0, text: $0.1) }
    }

    /// Returns the code for a violation, or `nil`.
    ///
    /// A rule about a field of an absent object does not apply.
    func breach(in root: JSON5Node) -> String? {
        if let condition, root.at(condition.path)?.scalar != condition.text { return nil }
        let parent = path.split(separator: "/").dropLast().joined(separator: "/")
        guard path.isEmpty || root.at(parent) != nil else { return nil }
        guard let node = root.at(path) else { return missing }
        return permits(node) ? nil : code
    }

    private func permits(_ node: JSON5Node) -> Bool {
        func isIn(_ range: ClosedRange<Int64>, _ text: some StringProtocol) -> Bool {
            Int64(text).map(range.contains) ?? false
        }
        switch form {
        case .text(let range): return node.text.map { range.contains($0.utf16.count) } ?? false
        case .integer(let range): if case .integer(let number) = node.value { return range.contains(number) }
        case .digits(let range): return isIn(range, node.text ?? "")
        case .seconds(let range):
            guard let text = node.text, text.hasSuffix("s") else { return false }
            return isIn(range, text.dropLast())
        case .among(let words): return words.split(separator: " ").contains { $0 == node.scalar ?? "" }
        case .flag: if case .boolean = node.value { return true }
        case .object(let names):
            guard let members = node.members else { return false }
            let known = names.split(separator: " ")
            return known.isEmpty || members.allSatisfy { member in known.contains { $0 == member.key } }
        case .data:
            return node.members?.allSatisfy { member in
                member.node.text != nil && !["from", "gcm", "message_type"].contains(member.key)
                    && !member.key.hasPrefix("google.") && !member.key.hasPrefix("gcm.")
            } ?? false
        case .json: return JSON5Node.strict(Array((node.text ?? "").utf8))?.members != nil
        case .url(let schemes):
            return schemes.split(separator: " ").contains { node.text?.hasPrefix($0 + "://") ?? false }
        case .tokens:
            guard case .array(let list) = node.value else { return false }
            return (1...1_000).contains(list.count) && list.allSatisfy { $0.text?.isEmpty == false }
        case .anyOf(let names): return names.split(separator: " ").contains { node.at(String($0)) != nil }
        }
        return false
    }
}

extension JSON5Node {
    /// Parses strict JSON; the result is `nil` for any other text.
    static func strict(_ bytes: [UInt8]) -> JSON5Node? {
        let isJSON = bytes.withUnsafeBytes { (try? JSONParser().parse($0)) != nil }
        return isJSON ? try? JSON5Parser.parse(bytes) : nil
    }

    /// Decodes a URL-encoded form into an object of strings.
    ///
    /// The result is `nil` if a percent escape is malformed.
    static func form(_ bytes: [UInt8]) -> JSON5Node? {
        var members: [JSON5Member] = []
        for part in bytes.split(separator: UInt8(ascii: "&")) {
            let pair = part.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            let texts = pair.map { $0.map { $0 == UInt8(ascii: "+") ? 0x20 : $0 }.percentDecoded() }
            guard let name = texts[0], let value = texts.count > 1 ? texts[1] : [] else { return nil }
            let text = String(decoding: value, as: UTF8.self)
            members.append(JSON5Member(String(decoding: name, as: UTF8.self), JSON5Node(.string(text))))
        }
        return JSON5Node(.object(members))
    }

    func at(_ path: String) -> JSON5Node? {
        var node = self
        for name in path.split(separator: "/") {
            guard let found = node.members?.first(where: { $0.key == name })?.node, found.value != .null else {
                return nil
            }
            node = found
        }
        return node
    }

    var members: [JSON5Member]? { if case .object(let members) = value { members } else { nil } }
    var text: String? { if case .string(let text) = value { text } else { nil } }
    var scalar: String? {
        switch value {
        case .string(let text): text
        case .integer(let number): "\(number)"
        case .boolean(let flag): "\(flag)"
        default: nil
        }
    }
    /// The texts of an array, or the parts of a text that are separated by commas.
    var list: [String] {
        if case .array(let nodes) = value { return nodes.compactMap(\.text) }
        return text?.split(separator: ",").map(String.init) ?? []
    }
    /// The sum of the lengths of all names and texts.
    var textByteCount: Int {
        members?.reduce(0) { $0 + $1.key.utf8.count + $1.node.textByteCount } ?? scalar?.utf8.count ?? 0
    }
}
