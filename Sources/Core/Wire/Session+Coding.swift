extension Hello: WireMessage {
    package static let frameType = FrameType.hello

    package enum Field: UInt32, MessageField {
        case appId = 1, role, cid, registration, timestamp, proof, queueEpoch, positions, applicationState,
            keepsRunning, heartbeatSeconds, badge, tokens, opened, replayOpened, client, window, nonce,
            registrationToken, attributes

        package var shape: FieldShape {
            switch self {
            case .appId, .client, .registrationToken: .string
            case .role, .applicationState: .enumeration
            case .cid, .proof, .nonce: .bytes
            case .opened: .bytes.repeated
            case .registration, .keepsRunning, .replayOpened: .bool
            case .timestamp, .queueEpoch: .uint64
            case .heartbeatSeconds, .window: .uint32
            case .badge: .sint32.optional
            case .positions, .tokens: .message.repeated
            case .attributes: .message
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        var hasProof = false
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .appId: appID = try cursor.string(field, limit: Limits.appIDByteCount, in: bytes)
            case .role: role = try cursor.knownValue(Role.self, field, in: bytes)
            case .cid: cid = try cursor.identifier(DeviceID.self, field, in: bytes)
            case .registration: registration = try cursor.bool(in: bytes)
            case .timestamp: timestamp = try cursor.varint(in: bytes)
            case .proof:
                // The proof is the only scalar that must not be repeated, because `HelloTranscript` accepts one proof.
                guard !hasProof else { throw .repeated(field: field.rawValue) }
                hasProof = true
                proof = try cursor.array(field, limit: Limits.proofByteCount, in: bytes)
            case .queueEpoch: queueEpoch = try cursor.varint(in: bytes)
            case .positions: try cursor.element(of: &positions, field, limit: Limits.positionCount, in: bytes)
            case .applicationState: applicationState = try cursor.applicationState(in: bytes)
            case .keepsRunning: keepsRunning = try cursor.bool(in: bytes)
            case .heartbeatSeconds: heartbeatSeconds = try cursor.uint32(in: bytes)
            case .badge: badge = try cursor.sint32(in: bytes)
            case .tokens: try cursor.token(of: &tokens, refused: &refusedTokens, field, in: bytes)
            case .opened:
                let id = try cursor.identifier(MessageID.self, field, in: bytes)
                guard opened.count < Limits.openedCount else { throw .tooMany(field: field.rawValue) }
                opened.append(id)
            case .replayOpened: replayOpened = try cursor.bool(in: bytes)
            case .client: client = try cursor.string(field, limit: Limits.clientByteCount, in: bytes)
            case .window: window = try cursor.uint32(in: bytes)
            case .nonce: nonce = try cursor.array(field, limit: Limits.nonceByteCount, in: bytes)
            case .registrationToken:
                registrationToken = try cursor.string(field, limit: Limits.webTokenByteCount, in: bytes)
            case .attributes:
                try DeviceAttributes.merge(bytes, at: cursor.lengthDelimited(in: bytes), into: &attributes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.text(appID, Field.appId)
        sink.value(role, Field.role)
        sink.identifier(cid, Field.cid)
        sink.flag(registration, Field.registration)
        sink.number(timestamp, Field.timestamp)
        sink.bytes(proof, Field.proof)
        sink.number(queueEpoch, Field.queueEpoch)
        sink.messages(positions, Field.positions)
        sink.value(applicationState, Field.applicationState)
        sink.flag(keepsRunning, Field.keepsRunning)
        sink.number(heartbeatSeconds, Field.heartbeatSeconds)
        sink.optional(badge, Field.badge)
        sink.messages(tokens, Field.tokens)
        for id in opened { sink.element(id, Field.opened) }
        sink.flag(replayOpened, Field.replayOpened)
        sink.text(client, Field.client)
        sink.number(window, Field.window)
        sink.bytes(nonce, Field.nonce)
        sink.text(registrationToken, Field.registrationToken)
        if let attributes { sink.message(attributes, Field.attributes) }
    }
}

extension Welcome: WireMessage {
    package static let frameType = FrameType.welcome

    package enum Field: UInt32, MessageField {
        case generation = 1, queueEpoch, heartbeatSeconds, window, serverTime, backlog, dropped, cid, deviceSecret

        package var shape: FieldShape {
            switch self {
            case .generation, .queueEpoch, .serverTime, .backlog: .uint64
            case .heartbeatSeconds, .window: .uint32
            case .dropped: .message.repeated
            case .cid, .deviceSecret: .bytes
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .generation: generation = try cursor.varint(in: bytes)
            case .queueEpoch: queueEpoch = try cursor.varint(in: bytes)
            case .heartbeatSeconds: heartbeatSeconds = try cursor.uint32(in: bytes)
            case .window: window = try cursor.uint32(in: bytes)
            case .serverTime: serverTime = try cursor.varint(in: bytes)
            case .backlog: backlog = try cursor.varint(in: bytes)
            case .dropped: try cursor.element(of: &dropped, field, limit: Limits.droppedCount, in: bytes)
            case .cid: cid = try cursor.identifier(DeviceID.self, field, in: bytes)
            case .deviceSecret: deviceSecret = try cursor.array(field, limit: Limits.secretByteCount, in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(generation, Field.generation)
        sink.number(queueEpoch, Field.queueEpoch)
        sink.number(heartbeatSeconds, Field.heartbeatSeconds)
        sink.number(window, Field.window)
        sink.number(serverTime, Field.serverTime)
        sink.number(backlog, Field.backlog)
        sink.messages(dropped, Field.dropped)
        sink.identifier(cid, Field.cid)
        sink.bytes(deviceSecret, Field.deviceSecret)
    }
}

extension Close: WireMessage {
    package static let frameType = FrameType.close

    package enum Field: UInt32, MessageField {
        case code = 1, reason, retryAfterMinMs, retryAfterMaxMs, alternate, serverTime

        package var shape: FieldShape {
            switch self {
            case .code, .retryAfterMinMs, .retryAfterMaxMs: .uint32
            case .reason, .alternate: .string
            case .serverTime: .uint64
            }
        }
    }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while let field = try cursor.next(Field.self, in: bytes) {
            switch field {
            case .code: code = try cursor.uint32(in: bytes)
            case .reason: reason = try cursor.string(field, limit: Limits.reasonByteCount, in: bytes)
            case .retryAfterMinMs: retryAfterMinimum = try cursor.uint32(in: bytes)
            case .retryAfterMaxMs: retryAfterMaximum = try cursor.uint32(in: bytes)
            case .alternate: alternate = try cursor.string(field, limit: Limits.alternateByteCount, in: bytes)
            case .serverTime: serverTime = try cursor.varint(in: bytes)
            }
        }
    }

    package func write(to sink: inout some ByteSink) {
        sink.number(code, Field.code)
        sink.text(reason, Field.reason)
        sink.number(retryAfterMinimum, Field.retryAfterMinMs)
        sink.number(retryAfterMaximum, Field.retryAfterMaxMs)
        sink.text(alternate, Field.alternate)
        sink.number(serverTime, Field.serverTime)
    }
}

extension Ping: WireMessage {
    package static let frameType = FrameType.ping

    package enum Field: UInt32, MessageField {
        case nonce = 1

        package var shape: FieldShape { .uint64 }
    }

    package init() { self.init(nonce: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while try cursor.next(Field.self, in: bytes) != nil { nonce = try cursor.varint(in: bytes) }
    }

    package func write(to sink: inout some ByteSink) { sink.number(nonce, Field.nonce) }
}

extension Pong: WireMessage {
    package static let frameType = FrameType.pong

    package enum Field: UInt32, MessageField {
        case nonce = 1

        package var shape: FieldShape { .uint64 }
    }

    package init() { self.init(nonce: 0) }

    package mutating func merge(_ bytes: RawSpan, at range: Range<Int>) throws(WireError) {
        var cursor = Cursor(range)
        while try cursor.next(Field.self, in: bytes) != nil { nonce = try cursor.varint(in: bytes) }
    }

    package func write(to sink: inout some ByteSink) { sink.number(nonce, Field.nonce) }
}
