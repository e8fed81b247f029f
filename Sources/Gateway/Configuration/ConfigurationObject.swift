internal import TextForms

/// Collects all problems of a configuration, so that one run reports them together.
package final class ConfigurationProblems {
    package private(set) var all: [ConfigurationProblem] = []

    package init() {}

    package func report(_ path: String, at position: TextPosition?, _ text: String) {
        all.append(ConfigurationProblem(path: path, position: position, text: text))
    }

    /// The problems in file order.
    package var sorted: [ConfigurationProblem] {
        all.sorted { left, right in
            guard let first = left.position else { return right.position != nil }
            guard let second = right.position else { return false }
            return (first.line, first.column) < (second.line, second.column)
        }
    }
}

/// One object of the configuration while it is read; `finish` reports all keys that were not read.
package final class ConfigurationObject {
    package let problems: ConfigurationProblems
    package let path: String
    let position: TextPosition
    private let members: [String: JSON5Member]
    private var asked: [String] = []

    package init(_ members: [JSON5Member], path: String, position: TextPosition, problems: ConfigurationProblems) {
        // The parser refuses repeated keys.
        self.members = Dictionary(members.map { ($0.key, $0) }, uniquingKeysWith: { first, _ in first })
        (self.path, self.position, self.problems) = (path, position, problems)
    }

    /// Parses a file whose root is an object.
    package static func root(
        _ bytes: [UInt8], file: String, problems: ConfigurationProblems
    ) throws(ConfigurationError) -> ConfigurationObject {
        let root: JSON5Node
        do {
            root = try JSON5Parser.parse(bytes)
        } catch {
            let problem = ConfigurationProblem(path: "", position: error.position, text: error.reason)
            throw ConfigurationError(file: file, problems: [problem])
        }
        guard case .object(let members) = root.value else {
            let text = "\(shown(root)) is not allowed; an object"
            let problem = ConfigurationProblem(path: "", position: root.position, text: text)
            throw ConfigurationError(file: file, problems: [problem])
        }
        return ConfigurationObject(members, path: "", position: root.position, problems: problems)
    }

    package func path(of key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }

    /// Whether the key is present and not null.
    package func has(_ key: String) -> Bool { members[key].map { $0.node.value != .null } ?? false }

    package func report(_ key: String, _ text: String) {
        problems.report(path(of: key), at: members[key]?.keyPosition ?? position, text)
    }

    /// Returns the node under `key`; `nil` if it is absent or null.
    package func node(_ key: String) -> JSON5Node? {
        asked.append(key)
        guard let node = members[key]?.node, node.value != .null else { return nil }
        return node
    }

    /// Returns the object under `key`; `nil` if it is absent, or not an object (reported).
    package func object(_ key: String) -> ConfigurationObject? {
        guard let node = node(key) else { return nil }
        return Self.object(node, path: path(of: key), problems: problems)
    }

    /// Returns the objects in the array under `key`; `nil` if it is absent, or not an array (reported).
    package func objects(_ key: String, limit: Int) -> [ConfigurationObject]? {
        guard let node = node(key) else { return nil }
        guard case .array(let nodes) = node.value else {
            report(key, "\(Self.shown(node)) is not allowed; an array of objects")
            return nil
        }
        if nodes.count > limit { report(key, "\(nodes.count) entries are not allowed; at most \(limit)") }
        return nodes.prefix(limit).enumerated().compactMap { index, node in
            Self.object(node, path: "\(path(of: key))[\(index)]", problems: problems)
        }
    }

    private static func object(_ node: JSON5Node, path: String, problems: ConfigurationProblems) -> ConfigurationObject?
    {
        guard case .object(let members) = node.value else {
            problems.report(path, at: node.position, "\(shown(node)) is not allowed; an object")
            return nil
        }
        return ConfigurationObject(members, path: path, position: node.position, problems: problems)
    }

    package func boolean(_ key: String) -> Bool? {
        guard let node = node(key) else { return nil }
        guard case .boolean(let value) = node.value else {
            report(key, "\(Self.shown(node)) is not allowed; true or false")
            return nil
        }
        return value
    }

    package func integer(_ key: String, in range: ClosedRange<Int64>) -> Int64? {
        guard let node = node(key) else { return nil }
        guard case .integer(let value) = node.value, range.contains(value) else {
            report(
                key,
                "\(Self.shown(node)) is not allowed; an integer from \(range.lowerBound) to \(range.upperBound)")
            return nil
        }
        return value
    }

    /// Returns a text that `check` accepts; `allowed` describes the accepted texts, for the report.
    package func string(_ key: String, allowed: String, where check: (String) -> Bool) -> String? {
        guard let node = node(key) else { return nil }
        guard case .string(let value) = node.value, check(value) else {
            report(key, "\(Self.shown(node)) is not allowed; \(allowed)")
            return nil
        }
        return value
    }

    /// Returns a text converted by `read`; `allowed` describes the accepted texts, for the report.
    package func value<Value>(_ key: String, allowed: String, _ read: (String) -> Value?) -> Value? {
        var value: Value?
        _ = string(key, allowed: allowed) { text in
            value = read(text)
            return value != nil
        }
        return value
    }

    /// Returns a text as `string` does, and reports an absent key.
    package func required(_ key: String, _ allowed: String, where check: (String) -> Bool) -> String? {
        if !has(key) { report(key, "missing; \(allowed)") }
        return string(key, allowed: allowed, where: check)
    }

    package func choice<Value: RawRepresentable & CaseIterable>(_ key: String, _: Value.Type) -> Value?
    where Value.RawValue == String {
        let allowed = Value.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
        guard let text = string(key, allowed: "one of \(allowed)", where: { Value(rawValue: $0) != nil }) else {
            return nil
        }
        return Value(rawValue: text)
    }

    /// Returns the texts of a string or an array of strings; `nil` if absent or invalid (reported).
    ///
    /// `isSecret` keeps the values out of reports.
    package func strings(
        _ key: String, limit: Int, isSecret: Bool = false, mayBeEmpty: Bool = false
    ) -> [String]? {
        guard let node = node(key) else { return nil }
        let nodes: [JSON5Node]
        if case .array(let list) = node.value { nodes = list } else { nodes = [node] }
        let least = mayBeEmpty ? 0 : 1
        guard least...limit ~= nodes.count else {
            report(key, "\(nodes.count) values are not allowed; \(least) to \(limit)")
            return nil
        }
        var texts: [String] = []
        for node in nodes {
            guard case .string(let text) = node.value else {
                let shown = isSecret ? "the value" : Self.shown(node)
                report(key, "\(shown) is not allowed; a text or an array of texts")
                return nil
            }
            texts.append(text)
        }
        return texts
    }

    /// Reports every key that was not read; must be called last.
    package func finish() {
        let known = asked.sorted()
        for member in members.values where !asked.contains(member.key) {
            let hint = Suggestion.hint(for: member.key, among: known)
            problems.report(
                path(of: member.key), at: member.keyPosition,
                "unknown key\(hint)\(hint.isEmpty ? "; " : " ")allowed here: \(known.joined(separator: ", "))")
        }
    }

    /// Returns a value for a message: short, and on one line.
    package static func shown(_ node: JSON5Node) -> String {
        switch node.value {
        case .null: "null"
        case .boolean(let value): "\(value)"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .string(let text):
            "\"" + text.prefix(64).map { $0.isNewline || $0 == "\0" ? " " : String($0) }.joined()
                + (text.count > 64 ? "…\"" : "\"")
        case .array: "an array"
        case .object: "an object"
        }
    }
}
