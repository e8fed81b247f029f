extension Deliver: WireMessage {
    package static let frameType = FrameType.deliver

    package enum Field: UInt32, MessageField {
        case stream = 1, sequence, msgId, taskId, payload, offline, acceptedAt, alertedAt, attempt, collapseKey, alert
        case carriedByVendor

        package var shape: FieldShape {
            switch self {
            case .stream, .attempt: .uint32
            case .sequence, .acceptedAt, .alertedAt: .uint64
            case .msgId, .taskId, .payload: .bytes
            case .offline, .carriedByVendor: .bool
            case .collapseKey: .string
            case .alert: .message
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .stream: stream = try cursor.uint32(in: bytes)
            case .sequence: sequence = try cursor.varint(in: bytes)
            case .msgId: messageID = try cursor.identifier(MessageID.self, field, in: bytes)
            case .taskId: taskID = try cursor.identifier(TaskID.self, field, in: bytes)
            case .payload: payload = try cursor.array(field, in: bytes)
            case .offline: offline = try cursor.bool(in: bytes)
            case .acceptedAt: acceptedAt = try cursor.varint(in: bytes)
            case .alertedAt: alertedAt = try cursor.varint(in: bytes)
            case .attempt: attempt = try cursor.uint32(in: bytes)
            case .collapseKey: collapseKey = try cursor.string(field, limit: .max, in: bytes)
            case .alert: try Alert.merge(bytes, at: cursor.lengthDelimited(in: bytes), into: &alert)
            case .carriedByVendor: carriedByVendor = try cursor.bool(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(stream, Field.stream)
        sink.number(sequence, Field.sequence)
        sink.identifier(messageID, Field.msgId)
        sink.identifier(taskID, Field.taskId)
        sink.bytes(payload, Field.payload)
        sink.flag(offline, Field.offline)
        sink.number(acceptedAt, Field.acceptedAt)
        sink.number(alertedAt, Field.alertedAt)
        sink.number(attempt, Field.attempt)
        sink.text(collapseKey, Field.collapseKey)
        if let alert { sink.message(alert, Field.alert) }
        sink.flag(carriedByVendor, Field.carriedByVendor)
    }
}

extension Ack: WireMessage {
    package static let frameType = FrameType.ack

    package enum Field: UInt32, MessageField {
        case positions = 1, rejected

        package var shape: FieldShape { .message.repeated }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .positions: try cursor.element(of: &positions, field, limit: Limits.positionCount, in: bytes)
            case .rejected: try cursor.element(of: &rejected, field, limit: Limits.rejectedCount, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.messages(positions, Field.positions)
        sink.messages(rejected, Field.rejected)
    }
}

extension Revoke: WireMessage {
    package static let frameType = FrameType.revoke

    package enum Field: UInt32, MessageField {
        case sequence = 1, msgId, taskId, revokedTaskId

        package var shape: FieldShape {
            switch self {
            case .sequence: .uint64
            case .msgId, .taskId, .revokedTaskId: .bytes
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .sequence: sequence = try cursor.varint(in: bytes)
            case .msgId: messageID = try cursor.identifier(MessageID.self, field, in: bytes)
            case .taskId: taskID = try cursor.identifier(TaskID.self, field, in: bytes)
            case .revokedTaskId: revokedTaskID = try cursor.identifier(TaskID.self, field, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(sequence, Field.sequence)
        sink.identifier(messageID, Field.msgId)
        sink.identifier(taskID, Field.taskId)
        sink.identifier(revokedTaskID, Field.revokedTaskId)
    }
}
