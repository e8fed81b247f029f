import Configuration
internal import Gateway
internal import JSON
internal import PushAPI

/// Parses any bytes as a JSON document as the push API does: writing and reparsing yields the same document.
enum JSONFuzz {
    static func run(_ input: [UInt8]) throws {
        let parser = JSONParser(byteLimit: 1 << 20, depthLimit: 16)
        guard let written = try rewritten(input, parser) else { return }
        let isWhole = !parser.hasUnreadable
        guard let again = try rewritten(written, parser) else {
            throw FuzzFailure(description: "the writer's own document cannot be read")
        }
        try require(again == written, "a document changes when it is written")
        // In JSON5 an unreadable value makes the whole document invalid.
        guard isWhole else { return }
        // JSON is a subset of JSON5, so the configuration parser accepts the same documents, except for its own rules.
        do throws(JSON5Error) { _ = try JSON5Parser.parse(input) } catch {
            // The configuration parser rejects numbers that exceed a double.
            let isOwnRule = ["stands already", "nested too deeply", "is no number"].contains {
                error.reason.contains($0)
            }
            try require(isOwnRule, "JSON that is no JSON5: \(error.reason)")
        }
    }

    /// Parses a document, reads every value and writes it; `nil` if the document is refused.
    private static func rewritten(_ bytes: [UInt8], _ parser: JSONParser) throws -> [UInt8]? {
        try bytes.withUnsafeBytes { bytes in
            let value: JSONValue
            do throws(JSONError) { value = try parser.parse(bytes) } catch { return nil }
            try visit(value, depth: 1)
            var writer = JSONWriter()
            writer.value(value)
            return writer.bytes
        }
    }

    private static func visit(_ value: JSONValue, depth: Int) throws {
        try require(depth <= 17, "nested more deeply than allowed")
        if let number = value.lenientInteger, let integer = value.integer {
            try require(number == integer, "one number, two values")
        }
        _ = (value.lenientBool, value.string)
        for element in value.elements { try visit(element, depth: depth + 1) }
        for (key, member) in value.members {
            try require(key.stringBytes != nil || key.kind == .unreadable, "a key is no text")
            try visit(member, depth: depth + 1)
        }
    }

    /// Whether `bytes` are one JSON document.
    static func isJSON(_ bytes: [UInt8]) -> Bool {
        let parser = JSONParser(byteLimit: 8 << 20, depthLimit: 256)
        return bytes.withUnsafeBytes { bytes in
            do throws(JSONError) {
                _ = try parser.parse(bytes)
                return !parser.hasUnreadable
            } catch {
                return false
            }
        }
    }

    /// Checks that an answer's status exists in the API and that a JSON body is valid.
    static func check(_ response: APIResponse) throws {
        let known = [200, 400, 401, 403, 404, 405, 413, 429, 500, 503]
        try require(known.contains(response.status), "status \(response.status)")
        guard response.contentType == .json, !response.body.isEmpty else { return }
        try require(isJSON(response.body), "no JSON: \(String(decoding: response.body, as: UTF8.self))")
    }
}
