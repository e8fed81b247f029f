import Foundation
import Testing
@testable import Wire

@Suite("The codec's tables match the schema")
struct SchemaTests {
    /// Numbers of descriptor.proto.
    private enum Label { static let repeated = 3 }

    private static func descriptor() throws -> RawFields {
        let folder = FileManager.default.temporaryDirectory
            .appendingPathComponent("longwire-descriptors-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        _ = try Protoc.run(["--descriptor_set_out=\(folder.path)", Protoc.schema])
        let set = try RawFields([UInt8](try Data(contentsOf: folder)))
        return try RawFields(try #require(set.all(1).first))
    }

    private static func kind(_ type: Int) -> FieldShape.Kind? {
        switch type {
        case 4: .uint64
        case 8: .bool
        case 9: .string
        case 11: .message
        case 12: .bytes
        case 13: .uint32
        case 14: .enumeration
        case 17: .sint32
        case 18: .sint64
        default: nil
        }
    }

    @Test("every message has the same fields: names, numbers, types, repeated, optional")
    func fields() throws {
        let messages = try Self.descriptor().all(4).map { try RawFields($0) }
        #expect(Set(messages.map { $0.text(1) }) == Set(Schema.messages.map(\.name)))
        for message in messages {
            let name = message.text(1)
            let ours = try #require(Schema.messages.first { $0.name == name }, "no codec for \(name)")
            let fields = try message.all(2).map { bytes in
                let field = try RawFields(bytes)
                let kind = try #require(Self.kind(field.number(5)), "\(name): a type the codec does not have")
                let isRepeated = field.number(4) == Label.repeated
                // A repeated number would need the packed form, which the codec does not support.
                let isNumber = kind != .message && kind != .bytes && kind != .string
                #expect(!(isRepeated && isNumber), "\(name): a repeated number")
                return Schema.Field(
                    name: field.text(10), number: UInt32(field.number(3)),
                    shape: FieldShape(kind: kind, isRepeated: isRepeated, isOptional: field.number(17) == 1))
            }
            #expect(ours.fields == fields, "\(name)")
        }
    }

    @Test("frame types have the schema's numbers and name the schema's messages")
    func frameTypes() throws {
        let values = try Self.enumeration("FrameType", in: Self.descriptor().all(5))
        #expect(values.map(\.number) == Array(0...FrameType.allCases.count))
        for type in FrameType.allCases {
            // UPDATE_RESULT and updateResult; UpdateResult is the message.
            let name = try #require(values.first { $0.number == Int(type.rawValue) }).name
            #expect(name.replacing("_", with: "") == "\(type)".uppercased())
            let message = try #require(Schema.messages.first { $0.frameType == type })
            #expect(message.name.uppercased() == "\(type)".uppercased())
        }
    }

    @Test("enums have the schema's values")
    func enumerations() throws {
        let file = try Self.descriptor()
        func expect(_ name: String, _ enums: [[UInt8]], equals ours: [String], prefix: String = "") throws {
            let values = try Self.enumeration(name, in: enums)
            #expect(values.map(\.name) == ours.map { prefix + $0 }, "\(name)")
            #expect(values.map(\.number) == Array(0..<ours.count), "\(name)")
        }
        func nested(_ message: String) throws -> [[UInt8]] {
            try #require(try file.all(4).map { try RawFields($0) }.first { $0.text(1) == message }).all(4)
        }
        func names<Value: RawRepresentable>(_: Value.Type) -> [String] where Value.RawValue == UInt8 {
            (UInt8.min...UInt8.max).compactMap { Value(rawValue: $0) }.map { value in
                "\(value)".map { $0.isUppercase ? "_\($0)" : $0.uppercased() }.joined()
            }
        }
        try expect("Role", file.all(5), equals: names(Role.self), prefix: "ROLE_")
        try expect("ApplicationState", file.all(5), equals: names(ApplicationState.self))
        try expect("Kind", nested("VendorToken"), equals: names(VendorToken.Kind.self))
        try expect("Environment", nested("VendorToken"), equals: names(VendorToken.Environment.self))
        // Follow-up channels have no tokens, so the schema does not name them.
        let vendors = names(VendorChannel.self).prefix(VendorChannel.vendors.count)
        try expect("Channel", nested("VendorToken"), equals: Array(vendors))
        try expect("Kind", nested("Feedback"), equals: names(Feedback.Kind.self))
    }

    private static func enumeration(_ name: String, in enums: [[UInt8]]) throws -> [(name: String, number: Int)] {
        let found = try #require(try enums.map { try RawFields($0) }.first { $0.text(1) == name }, "no enum \(name)")
        return try found.all(2).map { bytes in
            let value = try RawFields(bytes)
            return (value.text(1), value.number(2))
        }
    }

    @Test("Proto/README.md lists exactly the close codes with their numbers")
    func closeCodes() throws {
        let page = try String(
            contentsOf: Protoc.repository.appendingPathComponent("Proto/README.md"), encoding: .utf8)
        // Rows look like: | 100 | `goodbye` | meaning | rule |
        let rows = page.split(separator: "\n").compactMap { line -> (UInt32, String)? in
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard line.hasPrefix("|"), cells.count == 4, let number = UInt32(cells[0]) else { return nil }
            return (number, cells[1].trimmingCharacters(in: CharacterSet(charactersIn: "`")))
        }
        #expect(rows.map(\.0) == CloseCode.allCases.map(\.rawValue))
        #expect(rows.map(\.1) == CloseCode.allCases.map { "\($0)" })
    }
}
