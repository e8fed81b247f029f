// The numbers and shapes of fields. Each message lists its fields in an enum that decoding and encoding both use. A test that
// compares the enums with the schema's descriptors (`Schema.messages`) therefore verifies the codec.

/// The low three bits of a tag.
package enum WireType: UInt8, Sendable {
    case varint = 0, fixed64, lengthDelimited
    case fixed32 = 5
    // Groups (3 and 4) are refused: proto3 has none, and skipping them would need a stack. 6 and 7 do not exist.
}

/// The type of a field in the schema.
package struct FieldShape: Equatable, Sendable {
    package enum Kind: Sendable, CaseIterable {
        case uint32, uint64, sint32, sint64, bool, enumeration, bytes, string, message
    }
    package var kind: Kind
    package var isRepeated = false
    /// Whether the field is declared `optional`; a default value differs from absence and is therefore written.
    package var isOptional = false

    static var uint32: Self { Self(kind: .uint32) }
    static var uint64: Self { Self(kind: .uint64) }
    static var sint32: Self { Self(kind: .sint32) }
    static var sint64: Self { Self(kind: .sint64) }
    static var bool: Self { Self(kind: .bool) }
    static var enumeration: Self { Self(kind: .enumeration) }
    static var bytes: Self { Self(kind: .bytes) }
    static var string: Self { Self(kind: .string) }
    static var message: Self { Self(kind: .message) }

    var repeated: Self { Self(kind: kind, isRepeated: true) }
    var optional: Self { Self(kind: kind, isOptional: true) }

    package var wireType: WireType {
        switch kind {
        case .uint32, .uint64, .sint32, .sint64, .bool, .enumeration: .varint
        case .bytes, .string, .message: .lengthDelimited
        }
    }
}

/// The fields of a message: raw values are field numbers, case names are the schema's JSON names.
package protocol MessageField: RawRepresentable, CaseIterable, Sendable where RawValue == UInt32 {
    var shape: FieldShape { get }
}

extension MessageField {
    var tag: UInt64 { UInt64(rawValue) << 3 | UInt64(shape.wireType.rawValue) }
}
