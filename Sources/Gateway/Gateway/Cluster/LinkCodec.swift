internal import Quotas
internal import Delivery
internal import PushAPI
internal import Wire

// Publishes and their answers are encoded field by field, because each live message to another owner needs a publish and an
// answer. Other questions and answers use the compact encoder. An answer is decoded as the type that its question defines.
//
// A frame of messages begins with a number from its sender. A reader that cannot decode the frame returns that number, and the
// sender answers the frame's questions as busy.

enum LinkCodec {
    /// A question in an encoded block; the link keeps the question until its answer arrives.
    struct Question {
        let number: UInt32
        let part: Int
        let origin: Origin
        let type: any PartitionRequest.Type
    }

    /// The questions of an encoded block, except for publishes and lists, which the link reads from the block.
    struct Remainder {
        var questions: [Question] = []
        /// Busy answers to questions that cannot be encoded or are too large for a frame.
        var refused: [LoopAnswer] = []
    }

    /// The kind byte of a `message` frame that carries news; the kind byte of a question is its `PartitionRequest.number`.
    private static let newsNumber: UInt8 = 11

    // MARK: Messages to bytes

    /// Appends a message for a partition to the block; `number` returns the number of each new frame.
    static func encode(
        _ message: LoopMessage, part: Int, into block: LinkBlock, _ remainder: inout Remainder, number: () -> UInt32
    ) {
        switch message {
        case .publishes(let batch): encode(batch, part: part, into: block, &remainder, number: number)
        case .list(let fanout): encode(fanout, part: part, into: block, &remainder, number: number)
        // Answers use `encode(_:into:)`, and connections use a relay.
        case .answers, .adopt: return
        case .news(let news):
            guard let bytes = try? CompactEncoder.encode(news) else { return }
            put(newsNumber, .none, bytes)
        case .request(let request, let origin):
            guard let bytes = try? CompactEncoder.encode(request), bytes.count < LinkLimits.frameByteCount / 2 else {
                if origin != .none { remainder.refused.append(.answered(origin, nil)) }
                return
            }
            let number = put(type(of: request).number, origin, bytes)
            guard origin != .none else { return }
            remainder.questions.append(
                Question(number: number, part: part, origin: origin, type: type(of: request)))
        }

        @discardableResult
        func put(_ kind: UInt8, _ origin: Origin, _ bytes: [UInt8]) -> UInt32 {
            let number = number()
            let start = block.beginFrame(.message, part: part)
            block.put(number)
            block.put(kind)
            block.put(origin.route)
            block.put(origin.request)
            block.put(bytes)
            block.endFrame(start)
            return number
        }
    }

    // MARK: Bytes to messages

    struct Reader {
        let parts: Int
        let spares: SpareBatches
    }

    /// The reason a frame's message is rejected; the sender receives the number of an unread frame.
    enum Refusal: Error, Equatable { case unread(number: UInt32), malformed }

    /// Decodes the message of a frame.
    ///
    /// - Throws: `unread` for a frame that a newer release may have encoded; `malformed` for a frame that no release encodes.
    static func message(_ frame: LinkFrame, _ reader: Reader) throws(Refusal) -> LoopMessage {
        var cursor = LinkCursor(frame.body)
        guard let number = cursor.next(UInt32.self) else { throw .malformed }
        guard frame.part < reader.parts else { throw .unread(number: number) }
        let message: LoopMessage?
        switch frame.kind {
        case .publishes: message = publishes(&cursor, part: frame.part, reader).map { .publishes($0) }
        case .list:
            let fanout = fanout(&cursor, part: frame.part, reader)
            message = fanout.flatMap { $0.content.isValid ? .list($0) : nil }
        case .message:
            guard let kind = cursor.next(UInt8.self), let origin = cursor.nextOrigin() else { throw .malformed }
            message = rare(kind, origin, cursor.rest, LoopShare(index: frame.part, count: reader.parts))
        default: throw .malformed
        }
        guard let message else { throw .unread(number: number) }
        return message
    }

    private static func rare(
        _ kind: UInt8, _ origin: Origin, _ bytes: UnsafeRawBufferPointer, _ share: LoopShare
    ) -> LoopMessage? {
        if kind == newsNumber { return (try? CompactDecoder.decode(GatewayNews.self, from: bytes)).map { .news($0) } }
        func request<Request: PartitionRequest>(_ type: Request.Type) -> LoopMessage? {
            guard let request = try? CompactDecoder.decode(type, from: bytes), request.isValid(in: share) else {
                return nil
            }
            return .request(request, Request.isNotice ? .none : origin)
        }
        return PartitionRequests.type(kind).flatMap { request($0) }
    }

    // MARK: Answers to bytes

    /// Appends answers to the block, in order; consecutive answers to publishes share a frame.
    static func encode(_ answers: AnswerBatch, into block: LinkBlock) {
        var frame: Int?
        func endPublished() {
            guard let start = frame else { return }
            block.endFrame(start)
            frame = nil
        }
        answers.forEach { answer in
            switch answer {
            case .published(let origin, let outcome):
                let start = frame ?? beginPublished(in: block)
                frame = start
                put(origin, outcome, into: block)
                if block.bodyByteCount(from: start) >= LinkLimits.batchByteCount { endPublished() }
            case .answered(let origin, let value):
                endPublished()
                put(origin, value, into: block)
            }
        }
        endPublished()
    }

    /// Appends an answer; an answer that is too large becomes a busy answer.
    private static func put(_ origin: Origin, _ value: (any Codable & Sendable)?, into block: LinkBlock) {
        let encoded = value.flatMap { try? CompactEncoder.encode($0) }
        let bytes = encoded.flatMap { $0.count < LinkLimits.frameByteCount / 2 ? $0 : nil }
        let start = block.beginFrame(.answer)
        block.put(origin.route)
        block.put(origin.request)
        block.put(UInt8(bytes == nil ? 0 : 1))
        if let bytes { block.put(bytes) }
        block.endFrame(start)
    }

    // MARK: Bytes to answers

    /// Returns the origin and the bytes of an `answer` frame, without bytes for a busy answer; `nil` for any other body.
    static func answer(in body: UnsafeRawBufferPointer) -> (origin: Origin, bytes: UnsafeRawBufferPointer?)? {
        var cursor = LinkCursor(body)
        guard let origin = cursor.nextOrigin(), let hasBytes = cursor.next(UInt8.self) else { return nil }
        return (origin, hasBytes == 1 ? cursor.rest : nil)
    }

    /// Decodes the answer to a question of this type; returns `nil` for bytes of another form, or an answer out of bounds.
    static func answer<Request: PartitionRequest>(
        to type: Request.Type, _ bytes: UnsafeRawBufferPointer
    ) -> (any Codable & Sendable)? {
        guard let answer = try? CompactDecoder.decode(Request.Answer.self, from: bytes), Request.isValid(answer) else {
            return nil
        }
        return answer
    }
}

extension LinkCursor {
    fileprivate mutating func nextOrigin() -> Origin? {
        guard let route = next(UInt64.self), let request = next(UInt64.self) else { return nil }
        return Origin(route: route, request: request)
    }
}
