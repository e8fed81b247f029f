extension DeviceNames: WireMessage {
    package static let frameType = FrameType.deviceNames

    package enum Field: UInt32, MessageField {
        case request = 1, operation, alias, aliasType, tags, token

        package var shape: FieldShape {
            switch self {
            case .request: .uint32
            case .operation: .enumeration
            case .alias, .aliasType, .token: .string
            case .tags: .string.repeated
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.uint32(in: bytes)
            case .operation: operation = try cursor.knownValue(Operation.self, field, in: bytes)
            case .alias: alias = try cursor.string(field, limit: Limits.nameByteCount, in: bytes)
            case .aliasType: aliasType = try cursor.string(field, limit: Limits.nameByteCount, in: bytes)
            case .tags: try cursor.name(of: &tags, field, in: bytes)
            case .token: token = try cursor.string(field, limit: Limits.webTokenByteCount, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.value(operation, Field.operation)
        sink.text(alias, Field.alias)
        sink.text(aliasType, Field.aliasType)
        sink.names(tags, Field.tags)
        sink.text(token, Field.token)
    }
}

extension DeviceNamesResult: WireMessage {
    package static let frameType = FrameType.deviceNamesResult

    package enum Field: UInt32, MessageField {
        case request = 1, code, reason, alias, tags

        package var shape: FieldShape {
            switch self {
            case .request, .code: .uint32
            case .reason, .alias: .string
            case .tags: .string.repeated
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.uint32(in: bytes)
            case .code: code = try cursor.uint32(in: bytes)
            case .reason: reason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            case .alias: alias = try cursor.string(field, limit: Limits.nameByteCount, in: bytes)
            case .tags: try cursor.name(of: &tags, field, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
        sink.text(alias, Field.alias)
        sink.names(tags, Field.tags)
    }
}

extension Cursor {
    fileprivate mutating func name(
        of names: inout [String], _ field: some MessageField, in bytes: RawSpan
    ) throws(WireError) {
        let name = try string(field, limit: Limits.nameByteCount, in: bytes)
        guard names.count < Limits.deviceTagCount else { throw .tooMany(field: field.rawValue) }
        names.append(name)
    }
}

extension ByteSink {
    fileprivate mutating func names(_ names: [String], _ field: some MessageField) {
        for name in names {
            put(varint: field.tag)
            put(varint: UInt64(name.utf8.count))
            put(text: name)
        }
    }
}
