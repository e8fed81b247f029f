internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// The messages between gateways as bytes. A publish and its answer are written field by field, since every live message of
// another owner costs one of each. All others go through the compact coder.
//
// A frame of messages begins with a number, which its sender gave it: a reader that does not know what the frame says names
// that number, and the sender answers the questions in it as busy.

/// Messages as bytes.
enum LinkCodec {
    /// A question that went into a block, and what its caller is told if no answer comes.
    struct Question {
        let number: UInt32
        let part: Int
        let busy: LoopAnswer
    }

    /// What a block of messages leaves behind at its sender.
    ///
    /// Publishes and lists are not among them: the link finds those in the block.
    struct Remainder {
        var questions: [Question] = []
        /// Answers to questions that have no form, or are too large for a frame.
        var refused: [LoopAnswer] = []
    }

    /// The kinds of a `message` frame; numbers are never given again.
    enum MessageKind: UInt8 {
        case lease = 1, settle, extend, deviceStatus, trace, receipt, directory, task, launched, question, news,
            broadcasts, broadcastNews
    }

    /// The kinds of an `answer` frame; numbers are never given again.
    enum AnswerKind: UInt8 {
        case leased = 1, settled, deviceStatus, trace, directory, task, receipt, gateway
    }

    /// A value with the caller that it is for.
    struct Addressed<Value: Codable & Sendable>: Codable, Sendable {
        var origin: Origin
        var value: Value
    }

    private struct Broadcasts: Codable {
        var home: Int
        var logs: [AppBroadcasts]
    }

    private struct Settlement: Codable {
        var origin: Origin
        var results: [JobResult]
        var apps: Set<AppKey>?
    }

    private struct Extension: Codable {
        var origin: Origin
        var items: [ExtendItem]
        var milliseconds: Int64
        var apps: Set<AppKey>?
    }

    private struct StatusAnswer: Codable {
        var origin: Origin
        var cid: DeviceID
        var answer: DeviceAnswer
    }

    // MARK: Messages to bytes

    /// Appends a message for a part to the block; `number` makes the number of each frame.
    static func encode(
        _ message: LoopMessage, part: Int, into block: LinkBlock, _ remainder: inout Remainder, number: () -> UInt32
    ) {
        switch message {
        case .publishes(let batch): encode(batch, part: part, into: block, &remainder, number: number)
        case .list(let fanout): encode(fanout, part: part, into: block, &remainder, number: number)
        // Answers go to the node that asked, and a connection by a relay.
        case .answers, .adopt: return
        case .lease(let command): put(.lease, command)
        case .settle(let results, let apps, let origin):
            put(.settle, Settlement(origin: origin, results: results, apps: apps))
        case .extend(let items, let milliseconds, let apps, let origin):
            put(.extend, Extension(origin: origin, items: items, milliseconds: milliseconds, apps: apps))
        case .deviceStatus(let device, let origin): put(.deviceStatus, Addressed(origin: origin, value: device))
        case .trace(let message, let origin): put(.trace, Addressed(origin: origin, value: message))
        case .receipt(let command): put(.receipt, command)
        case .directory(let command): put(.directory, command)
        case .task(let command, let origin): put(.task, Addressed(origin: origin, value: command))
        case .launched(let record): put(.launched, record)
        case .broadcasts(let logs, let home): put(.broadcasts, Broadcasts(home: home, logs: logs))
        case .broadcastNews(let home): put(.broadcastNews, home)
        case .question(let question, let origin): put(.question, Addressed(origin: origin, value: question))
        case .news(let news): put(.news, news)
        }

        func put(_ kind: MessageKind, _ value: some Encodable) {
            let busy = message.busyAnswers
            guard let bytes = try? CompactEncoder.encode(value), bytes.count < LinkLimits.frameByteCount / 2 else {
                remainder.refused += busy
                return
            }
            let number = number()
            let start = block.beginFrame(.message, part: part)
            block.put(number)
            block.put(kind.rawValue)
            block.put(bytes)
            block.endFrame(start)
            for answer in busy { remainder.questions.append(Question(number: number, part: part, busy: answer)) }
        }
    }

    // MARK: Bytes to messages

    /// What a reader needs to make messages of frames.
    struct Reader {
        /// How many parts there are.
        let parts: Int
        let spares: SpareBatches
    }

    /// Why a frame's message cannot be taken: its sender is told its number.
    enum Refusal: Error, Equatable { case unread(number: UInt32), malformed }

    /// The message of a frame.
    ///
    /// - Throws: `unread` for a frame that a later release may have made; `malformed` for one that none makes.
    static func message(_ frame: LinkFrame, _ reader: Reader) throws(Refusal) -> LoopMessage {
        var cursor = LinkCursor(frame.body)
        guard let number = cursor.next(UInt32.self) else { throw .malformed }
        guard frame.part < reader.parts else { throw .unread(number: number) }
        let message: LoopMessage?
        switch frame.kind {
        case .publishes: message = publishes(&cursor, part: frame.part, reader).map { .publishes($0) }
        case .list: message = fanout(&cursor, part: frame.part, reader).map { .list($0) }
        case .message:
            guard let kind = cursor.next(UInt8.self) else { throw .malformed }
            message = MessageKind(rawValue: kind).flatMap { try? Self.message($0, cursor.rest) }
        default: throw .malformed
        }
        guard let message, message.isSound(inPart: frame.part, of: reader.parts) else { throw .unread(number: number) }
        return message
    }

    private static func message(_ kind: MessageKind, _ bytes: UnsafeRawBufferPointer) throws -> LoopMessage {
        func value<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
            try CompactDecoder.decode(type, from: bytes)
        }
        switch kind {
        case .lease: return .lease(try value())
        case .settle:
            let form: Settlement = try value()
            return .settle(form.results, apps: form.apps, form.origin)
        case .extend:
            let form: Extension = try value()
            return .extend(form.items, milliseconds: form.milliseconds, apps: form.apps, form.origin)
        case .deviceStatus:
            let form: Addressed<DeviceAddress> = try value()
            return .deviceStatus(form.value, form.origin)
        case .trace:
            let form: Addressed<MessageID> = try value()
            return .trace(form.value, form.origin)
        case .receipt: return .receipt(try value())
        case .directory: return .directory(try value())
        case .task:
            let form: Addressed<TaskCommand> = try value()
            return .task(form.value, form.origin)
        case .launched: return .launched(try value())
        case .broadcasts:
            let form: Broadcasts = try value()
            return .broadcasts(form.logs, home: form.home)
        case .broadcastNews: return .broadcastNews(home: try value())
        case .question:
            let form: Addressed<GatewayQuestion> = try value()
            return .question(form.value, form.origin)
        case .news: return .news(try value())
        }
    }

    // MARK: Answers to bytes

    /// Appends answers to the block, in their order; neighbours that answer publishes share a frame.
    static func encode(_ answers: AnswerBatch, into block: LinkBlock) {
        var frame: Int?
        func endPublished() {
            guard let start = frame else { return }
            block.endFrame(start)
            frame = nil
        }
        answers.forEach { answer in
            if case .published(let origin, let outcome) = answer {
                let start = frame ?? beginPublished(in: block)
                frame = start
                put(origin, outcome, into: block)
                if block.bodyByteCount(from: start) >= LinkLimits.batchByteCount { endPublished() }
            } else {
                endPublished()
                encode(rare: answer, into: block)
            }
        }
        endPublished()
    }

    private static func encode(rare answer: LoopAnswer, into block: LinkBlock) {
        let kind: AnswerKind
        let bytes: [UInt8]?
        switch answer {
        case .published: return
        case .leased(let origin, let jobs):
            (kind, bytes) = (.leased, try? CompactEncoder.encode(Addressed(origin: origin, value: jobs)))
        case .settled(let origin, let verdicts):
            (kind, bytes) = (.settled, try? CompactEncoder.encode(Addressed(origin: origin, value: verdicts)))
        case .deviceStatus(let origin, let cid, let status):
            let form = StatusAnswer(origin: origin, cid: cid, answer: status)
            (kind, bytes) = (.deviceStatus, try? CompactEncoder.encode(form))
        case .trace(let origin, let trace):
            (kind, bytes) = (.trace, try? CompactEncoder.encode(Addressed(origin: origin, value: trace)))
        case .directory(let origin, let reply):
            (kind, bytes) = (.directory, try? CompactEncoder.encode(Addressed(origin: origin, value: reply)))
        case .task(let origin, let said):
            (kind, bytes) = (.task, try? CompactEncoder.encode(Addressed(origin: origin, value: said)))
        case .receipt(let origin, let said):
            (kind, bytes) = (.receipt, try? CompactEncoder.encode(Addressed(origin: origin, value: said)))
        case .gateway(let origin, let said):
            (kind, bytes) = (.gateway, try? CompactEncoder.encode(Addressed(origin: origin, value: said)))
        }
        // An answer that is too large is said in its busy form: its caller must not wait for ever.
        guard let bytes, bytes.count < LinkLimits.frameByteCount / 2 else {
            if let busy = answer.busyForm { encode(rare: busy, into: block) }
            return
        }
        let start = block.beginFrame(.answer)
        block.put(kind.rawValue)
        block.put(bytes)
        block.endFrame(start)
    }

    // MARK: Bytes to answers

    /// Calls `body` with each answer of a frame.
    ///
    /// - Returns: false for bytes that are no answers.
    static func forEachAnswer(in frame: LinkFrame, _ body: (LoopAnswer) -> Void) -> Bool {
        switch frame.kind {
        case .published: return forEachPublished(in: frame.body, body)
        case .answer:
            guard let answer = try? rareAnswer(frame.body), answer.isSound else { return false }
            body(answer)
            return true
        default: return false
        }
    }

    private static func rareAnswer(_ bytes: UnsafeRawBufferPointer) throws -> LoopAnswer? {
        var cursor = LinkCursor(bytes)
        guard let kind = cursor.next(UInt8.self).flatMap({ AnswerKind(rawValue: $0) }) else { return nil }
        let rest = cursor.rest
        func value<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
            try CompactDecoder.decode(type, from: rest)
        }
        switch kind {
        case .leased:
            let form: Addressed<[Job]> = try value()
            return .leased(form.origin, form.value)
        case .settled:
            let form: Addressed<[ResultVerdict]> = try value()
            return .settled(form.origin, form.value)
        case .deviceStatus:
            let form: StatusAnswer = try value()
            return .deviceStatus(form.origin, form.cid, form.answer)
        case .trace:
            let form: Addressed<TraceAnswer> = try value()
            return .trace(form.origin, form.value)
        case .directory:
            let form: Addressed<DirectoryReply> = try value()
            return .directory(form.origin, form.value)
        case .task:
            let form: Addressed<TaskAnswer> = try value()
            return .task(form.origin, form.value)
        case .receipt:
            let form: Addressed<ReceiptAnswer> = try value()
            return .receipt(form.origin, form.value)
        case .gateway:
            let form: Addressed<GatewayAnswer> = try value()
            return .gateway(form.origin, form.value)
        }
    }
}

extension ExtendItem: Codable {
    private enum Key: String, CodingKey { case job, lease }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(job, forKey: .job)
        try container.encode(WordPair(leaseID), forKey: .lease)
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        self.init(
            job: try container.decode(MessageID.self, forKey: .job),
            leaseID: try container.decode(WordPair.self, forKey: .lease).words)
    }
}
