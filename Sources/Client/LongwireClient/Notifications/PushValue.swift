/// A value of a notification's `userInfo`, of one of JSON's types.
///
/// Unlike `Any`, it is `Equatable` and `Sendable`, and the client can store it.
public indirect enum PushValue: Equatable, Sendable {
    case null
    case boolean(Bool)
    case integer(Int64)
    case number(Double)
    case text(String)
    case list([PushValue])
    case members([String: PushValue])

    /// Converts a value of a `userInfo`; returns `nil` for types that JSON lacks, and for more than 16 levels of nesting.
    public init?(_ value: Any) { self.init(value, depth: 0) }

    private init?(_ value: Any, depth: Int) {
        guard depth < Limits.valueDepth else { return nil }
        if let value = value as? PushValue {
            self = value
        } else if let text = value as? String {
            self = .text(text)
        } else if let flag = Self.boolean(value) {
            self = .boolean(flag)
        } else if let integer = Self.integer(value) {
            self = .integer(integer)
        } else if let number = value as? Double ?? (value as? Float).map(Double.init) {
            guard number.isFinite else { return nil }
            self = .number(number)
        } else if let list = value as? [Any] {
            self = .list(list.compactMap { PushValue($0, depth: depth + 1) })
        } else if let members = value as? [AnyHashable: Any] {
            self = .members(Self.members(members, depth: depth + 1))
        } else if Self.isNull(value) {
            self = .null
        } else {
            return nil
        }
    }

    /// Converts the members of a dictionary.
    ///
    /// Keys that are not strings, and values that JSON lacks, are dropped.
    static func members(_ dictionary: [AnyHashable: Any], depth: Int = 0) -> [String: PushValue] {
        var members: [String: PushValue] = [:]
        for (key, value) in dictionary {
            if let name = key as? String, let value = PushValue(value, depth: depth) { members[name] = value }
        }
        return members
    }

    private static func integer(_ value: Any) -> Int64? {
        if let integer = value as? Int { return Int64(integer) }
        if let integer = value as? Int64 { return integer }
        if let integer = value as? any BinaryInteger { return Int64(exactly: integer) }
        return nil
    }

    /// Returns a Boolean value, or `nil`.
    ///
    /// Apple's systems also convert the numbers 0 and 1 to `Bool`; here they stay numbers.
    private static func boolean(_ value: Any) -> Bool? {
        guard let flag = value as? Bool else { return nil }
        #if canImport(ObjectiveC)
        return isBooleanObject(value) ? flag : nil
        #else
        return flag
        #endif
    }

    private static func isNull(_ value: Any) -> Bool {
        #if canImport(ObjectiveC)
        isNullObject(value)
        #else
        false
        #endif
    }

    // MARK: Reading

    /// The text, or `nil` for another type of value.
    public var text: String? { if case .text(let text) = self { text } else { nil } }

    /// The integer, or `nil` for another type of value.
    public var integer: Int64? { if case .integer(let integer) = self { integer } else { nil } }

    /// The members of an object, or `nil` for another type of value.
    public var members: [String: PushValue]? { if case .members(let members) = self { members } else { nil } }

    /// The elements of a list, or `nil` for another type of value.
    public var list: [PushValue]? { if case .list(let list) = self { list } else { nil } }

    /// The member of an object with this name, or `nil`.
    public subscript(name: String) -> PushValue? { members?[name] }

    /// The value in the form of a `userInfo`, or `nil` for null.
    public var any: (any Sendable)? {
        switch self {
        case .null: nil
        case .boolean(let flag): flag
        case .integer(let integer): Int(exactly: integer) ?? integer
        case .number(let number): number
        case .text(let text): text
        case .list(let list): list.compactMap(\.any)
        case .members(let members): members.compactMapValues(\.any)
        }
    }

    // MARK: The stored form

    // A letter for the type, a number, a colon and the contents, such as `t5:hello`. The number counts bytes or elements.

    func append(to bytes: inout [UInt8]) {
        func head(_ kind: Unicode.Scalar, _ number: some BinaryInteger) {
            bytes += Array("\(kind)\(number):".utf8)
        }
        switch self {
        case .null: head("n", 0)
        case .boolean(let flag): head("b", flag ? 1 : 0)
        case .integer(let integer): head("i", integer)
        case .number(let number): head("d", number.bitPattern)
        case .text(let text):
            head("t", text.utf8.count)
            bytes += Array(text.utf8)
        case .list(let list):
            head("l", list.count)
            for value in list { value.append(to: &bytes) }
        case .members(let members):
            head("m", members.count)
            // Sorted, so that equal values have equal bytes.
            for (name, value) in members.sorted(by: { $0.key < $1.key }) {
                PushValue.text(name).append(to: &bytes)
                value.append(to: &bytes)
            }
        }
    }

    /// Parses a value in the form that `append` writes, and removes its bytes; returns `nil` for other bytes.
    init?(consuming bytes: inout ArraySlice<UInt8>, depth: Int = 0) {
        guard depth <= Limits.valueDepth, let kind = bytes.popFirst(),
            let colon = bytes.prefix(Limits.valueDigitCount).firstIndex(of: UInt8(ascii: ":"))
        else { return nil }
        let digits = String(decoding: bytes[bytes.startIndex..<colon], as: UTF8.self)
        bytes = bytes[(colon + 1)...]
        switch Unicode.Scalar(kind) {
        case "n" where digits == "0": self = .null
        case "b" where digits == "0" || digits == "1": self = .boolean(digits == "1")
        case "i":
            guard let integer = Int64(digits) else { return nil }
            self = .integer(integer)
        case "d":
            guard let number = UInt64(digits).map(Double.init(bitPattern:)), number.isFinite else { return nil }
            self = .number(number)
        case "t":
            guard let count = Self.count(digits, in: bytes) else { return nil }
            self = .text(String(decoding: bytes.prefix(count), as: UTF8.self))
            bytes = bytes.dropFirst(count)
        case "l":
            guard let count = Self.count(digits, in: bytes) else { return nil }
            var list: [PushValue] = []
            for _ in 0..<count {
                guard let value = PushValue(consuming: &bytes, depth: depth + 1) else { return nil }
                list.append(value)
            }
            self = .list(list)
        case "m":
            guard let count = Self.count(digits, in: bytes) else { return nil }
            var members: [String: PushValue] = [:]
            for _ in 0..<count {
                guard let name = PushValue(consuming: &bytes, depth: depth + 1)?.text,
                    let value = PushValue(consuming: &bytes, depth: depth + 1)
                else { return nil }
                members[name] = value
            }
            self = .members(members)
        default: return nil
        }
    }

    /// Parses a count; returns `nil` if it exceeds the remaining bytes, because each element takes at least one byte.
    private static func count(_ digits: String, in bytes: ArraySlice<UInt8>) -> Int? {
        guard let count = Int(digits), (0...bytes.count).contains(count) else { return nil }
        return count
    }
}
