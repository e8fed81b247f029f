// Coding of values as the bytes of their stored form, for messages between gateways (Gateway/Cluster).

internal import Wire

private func encode(
    byteCount: Int, to encoder: any Encoder, _ write: (UnsafeMutableRawBufferPointer) -> Void
) throws {
    var bytes = [UInt8](repeating: 0, count: byteCount)
    unsafe bytes.withUnsafeMutableBytes { unsafe write($0) }
    var container = encoder.singleValueContainer()
    try container.encode(bytes)
}

/// Decodes the bytes of a row; throws if `read` returns `nil`.
private func decode<Value>(
    from decoder: any Decoder, _ read: (UnsafeRawBufferPointer) -> Value?
) throws -> Value {
    let container = try decoder.singleValueContainer()
    let bytes = try container.decode([UInt8].self)
    guard let value = unsafe bytes.withUnsafeBytes({ unsafe read($0) }) else {
        throw DecodingError.dataCorruptedError(in: container, debugDescription: "no such row")
    }
    return value
}

extension MessageContent: Codable {
    package func encode(to encoder: any Encoder) throws {
        try unsafe Delivery.encode(byteCount: byteCount, to: encoder) { bytes in
            var writer = unsafe RowWriter(bytes)
            write(&writer)
        }
    }

    package init(from decoder: any Decoder) throws {
        self = try unsafe decode(from: decoder) { bytes in
            var reader = unsafe RowReader(bytes)
            return MessageContent(&reader)
        }
    }
}

extension TagExpression: Codable {
    package func encode(to encoder: any Encoder) throws {
        try unsafe Delivery.encode(byteCount: byteCount, to: encoder) { bytes in
            var writer = unsafe RowWriter(bytes)
            write(&writer)
        }
    }

    package init(from decoder: any Decoder) throws {
        self = try unsafe decode(from: decoder) { bytes in
            var reader = unsafe RowReader(bytes)
            guard let expression = TagExpression(&reader), expression.tags.count <= Self.tagLimit,
                expression.groups.count <= Self.groupLimit
            else { return nil }
            return expression
        }
    }
}

extension TaskRecord: Codable {
    package func encode(to encoder: any Encoder) throws {
        try unsafe Delivery.encode(byteCount: TaskRow.byteCount(self), to: encoder) { bytes in
            unsafe TaskRow.write(self, into: bytes)
        }
    }

    package init(from decoder: any Decoder) throws {
        self = try unsafe decode(from: decoder) { bytes in unsafe TaskRow.read(bytes) }
    }
}

extension CountersRow: Codable {
    package func encode(to encoder: any Encoder) throws {
        try unsafe Delivery.encode(byteCount: Self.byteCount, to: encoder) { bytes in unsafe write(into: bytes) }
    }

    package init(from decoder: any Decoder) throws {
        self = try unsafe decode(from: decoder) { bytes in unsafe CountersRow(bytes) }
    }
}
