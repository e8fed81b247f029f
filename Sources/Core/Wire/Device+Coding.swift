extension DeviceUpdate: WireMessage {
    package static let frameType = FrameType.deviceUpdate

    package enum Field: UInt32, MessageField {
        case request = 1, applicationState, keepsRunning, badge, tokens, pushModeOff, heartbeatSeconds

        package var shape: FieldShape {
            switch self {
            case .request, .heartbeatSeconds: .uint32
            case .applicationState: .enumeration.optional
            case .keepsRunning, .pushModeOff: .bool.optional
            case .badge: .sint32.optional
            case .tokens: .message.repeated
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.uint32(in: bytes)
            case .applicationState: applicationState = try cursor.applicationState(in: bytes)
            case .keepsRunning: keepsRunning = try cursor.bool(in: bytes)
            case .badge: badge = try cursor.sint32(in: bytes)
            case .tokens: try cursor.token(of: &tokens, refused: &refusedTokens, field, in: bytes)
            case .pushModeOff: pushModeOff = try cursor.bool(in: bytes)
            case .heartbeatSeconds: heartbeatSeconds = try cursor.uint32(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.optional(applicationState, Field.applicationState)
        sink.optional(keepsRunning, Field.keepsRunning)
        sink.optional(badge, Field.badge)
        sink.messages(tokens, Field.tokens)
        sink.optional(pushModeOff, Field.pushModeOff)
        sink.number(heartbeatSeconds, Field.heartbeatSeconds)
    }
}

extension UpdateResult: WireMessage {
    package static let frameType = FrameType.updateResult

    package enum Field: UInt32, MessageField {
        case request = 1, code, reason, heartbeatSeconds

        package var shape: FieldShape {
            switch self {
            case .request, .code, .heartbeatSeconds: .uint32
            case .reason: .string
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
            case .heartbeatSeconds: heartbeatSeconds = try cursor.uint32(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
        sink.number(heartbeatSeconds, Field.heartbeatSeconds)
    }
}

extension Feedback: WireMessage {
    package static let frameType = FrameType.feedback

    package enum Field: UInt32, MessageField {
        case kind = 1, msgId, action

        package var shape: FieldShape {
            switch self {
            case .kind: .enumeration
            case .msgId: .bytes
            case .action: .uint32
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .kind: kind = try cursor.knownValue(Kind.self, field, in: bytes)
            case .msgId: messageID = try cursor.identifier(MessageID.self, field, in: bytes)
            case .action: action = try cursor.uint32(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.value(kind, Field.kind)
        sink.identifier(messageID, Field.msgId)
        sink.number(action, Field.action)
    }
}

extension Upstream: WireMessage {
    package static let frameType = FrameType.upstream

    package enum Field: UInt32, MessageField {
        case request = 1, payload, taskId

        package var shape: FieldShape {
            switch self {
            case .request: .uint32
            case .payload, .taskId: .bytes
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .request: request = try cursor.uint32(in: bytes)
            case .payload: payload = try cursor.array(field, in: bytes)
            case .taskId: taskID = try cursor.identifier(TaskID.self, field, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.bytes(payload, Field.payload)
        sink.identifier(taskID, Field.taskId)
    }
}

extension UpstreamResult: WireMessage {
    package static let frameType = FrameType.upstreamResult

    package enum Field: UInt32, MessageField {
        case request = 1, code, reason

        package var shape: FieldShape {
            switch self {
            case .request, .code: .uint32
            case .reason: .string
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
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(request, Field.request)
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
    }
}
