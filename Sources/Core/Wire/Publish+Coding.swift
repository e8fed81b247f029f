extension Publish: WireMessage {
    package static let frameType = FrameType.publish

    package enum Field: UInt32, MessageField {
        case request = 1, cid, payload, ttlMs, hasTtl, strategy, collapseKey, requestId, alert, apns

        package var shape: FieldShape {
            switch self {
            case .request: .uint64
            case .cid, .payload, .apns: .bytes
            case .ttlMs: .sint64.optional
            case .hasTtl: .bool
            case .strategy: .uint32
            case .collapseKey, .requestId: .string
            case .alert: .message
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.varint(in: bytes)
            case .cid: cid = try cursor.identifier(DeviceID.self, field, in: bytes)
            case .payload: payload = try cursor.array(field, in: bytes)
            case .ttlMs: timeToLive = try cursor.sint64(in: bytes)
            case .hasTtl: hasTimeToLive = try cursor.bool(in: bytes)
            case .strategy: strategy = try cursor.uint32(in: bytes)
            case .collapseKey: collapseKey = try cursor.string(field, limit: .max, in: bytes)
            case .requestId: requestID = try cursor.string(field, limit: .max, in: bytes)
            case .alert: try Alert.merge(bytes, at: cursor.lengthDelimited(in: bytes), into: &alert)
            case .apns: apns = try cursor.array(field, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.identifier(cid, Field.cid)
        sink.bytes(payload, Field.payload)
        sink.optional(timeToLive, Field.ttlMs)
        sink.flag(hasTimeToLive, Field.hasTtl)
        sink.number(strategy, Field.strategy)
        sink.text(collapseKey, Field.collapseKey)
        sink.text(requestID, Field.requestId)
        if let alert { sink.message(alert, Field.alert) }
        sink.bytes(apns, Field.apns)
    }
}

extension PublishResult: WireMessage {
    package static let frameType = FrameType.publishResult

    package enum Field: UInt32, MessageField {
        case request = 1, code, reason, msgId, taskId, live, fallback, fallbackReason, fsync, idsOnly

        package var shape: FieldShape {
            switch self {
            case .request: .uint64
            case .code, .fallback: .uint32
            case .reason, .fallbackReason: .string
            case .msgId, .taskId: .bytes
            case .live, .fsync, .idsOnly: .bool
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.varint(in: bytes)
            case .code: code = try cursor.uint32(in: bytes)
            case .reason: reason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            case .msgId: messageID = try cursor.identifier(MessageID.self, field, in: bytes)
            case .taskId: taskID = try cursor.identifier(TaskID.self, field, in: bytes)
            case .live: live = try cursor.bool(in: bytes)
            case .fallback: fallback = try cursor.uint32(in: bytes)
            case .fallbackReason: fallbackReason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            case .fsync: fsync = try cursor.bool(in: bytes)
            case .idsOnly: idsOnly = try cursor.bool(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
        sink.identifier(messageID, Field.msgId)
        sink.identifier(taskID, Field.taskId)
        sink.flag(live, Field.live)
        sink.number(fallback, Field.fallback)
        sink.text(fallbackReason, Field.fallbackReason)
        sink.flag(fsync, Field.fsync)
        sink.flag(idsOnly, Field.idsOnly)
    }
}
