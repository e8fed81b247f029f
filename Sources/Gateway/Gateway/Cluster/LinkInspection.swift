internal import Quotas
internal import Delivery

/// Invariants that must hold for any bytes received over a link, for fuzz tests.
package enum LinkInspection {
    private static let parts = 16

    /// Reads a stream of frames like a link, in pieces of `pieceByteCount`, and encodes the decoded messages again.
    ///
    /// - Returns: A description of the violated invariant, or `nil`.
    package static func problem(in stream: [UInt8], pieceByteCount: Int) -> String? {
        let reader = LinkFrameReader()
        reader.bodyLimit = LinkLimits.frameByteCount
        var problem: String?
        let codec = LinkCodec.Reader(parts: parts, spares: SpareBatches())
        stream.withUnsafeBytes { bytes in
            var start = 0
            while start < bytes.count, problem == nil {
                let end = min(bytes.count, start + max(1, pieceByteCount))
                let piece = UnsafeRawBufferPointer(rebasing: bytes[start..<end])
                do throws(LinkFault) {
                    let count = try reader.read(piece) { frame in
                        if problem == nil { problem = Self.problem(in: frame, codec) }
                        return true
                    }
                    if count != piece.count { problem = "the reader left \(piece.count - count) bytes" }
                    start = end
                } catch {
                    // A link would close this connection.
                    return
                }
            }
        }
        return problem
    }

    private static func problem(in frame: LinkFrame, _ codec: LinkCodec.Reader) -> String? {
        switch frame.kind {
        case .publishes, .list, .message:
            do throws(LinkCodec.Refusal) {
                let message = try LinkCodec.message(frame, codec)
                return stability(of: message, part: frame.part, codec)
            } catch {
                return nil
            }
        case .published:
            let answers = AnswerBatch()
            guard LinkCodec.forEachPublished(in: frame.body, { answers.append($0) }) else { return nil }
            let once = written(answers)
            return once == written(read(once)) ? nil : "answers change when they are written"
        case .answer:
            guard let (origin, bytes) = LinkCodec.answer(in: frame.body), let bytes else { return nil }
            // The answer's bytes do not name their type, so the route selects the type to decode.
            let types = PartitionRequests.types
            let type = types[Int(origin.route % UInt64(types.count))]
            guard let answer = LinkCodec.answer(to: type, bytes) else { return nil }
            guard let once = try? CompactEncoder.encode(answer),
                let again = once.withUnsafeBytes({ LinkCodec.answer(to: type, $0) }),
                let twice = try? CompactEncoder.encode(again)
            else { return "an answer is lost when it is written" }
            return once.sorted() == twice.sorted() ? nil : "an answer changes when it is written"
        case .hello: return LinkHello(frame.body).flatMap { LinkHello($0.bytes) == $0 ? nil : "a Hello changes" }
        case .close: return LinkClose(frame.body).flatMap { LinkClose($0.bytes) == $0 ? nil : "a Close changes" }
        case .trunk: return LinkHello(frame.body).flatMap { LinkHello($0.bytes) == $0 ? nil : "a Hello changes" }
        case .relay: return relayProblem(frame.body)
        case .heartbeat, .relayed, .relayBytes, .relayCredit, .relayEnd, .unread: return nil
        }
    }

    private static func relayProblem(_ body: UnsafeRawBufferPointer) -> String? {
        var cursor = LinkCursor(body)
        guard let _: UInt64 = cursor.next(), let preamble = try? RelayPreamble(cursor.rest),
            let bytes = try? preamble.encoded()
        else { return nil }
        guard let again = bytes.withUnsafeBytes({ try? RelayPreamble($0) }) else { return "a preamble is lost" }
        return (try? again.encoded()) == bytes ? nil : "a preamble changes"
    }

    /// Checks that decoding an encoded message and encoding it again yields the same bytes.
    private static func stability(of message: LoopMessage, part: Int, _ codec: LinkCodec.Reader) -> String? {
        guard let once = written(message, part: part) else { return nil }
        var twice: [UInt8] = []
        let reader = LinkFrameReader()
        reader.bodyLimit = LinkLimits.frameByteCount
        let isRead = once.withUnsafeBytes { bytes in
            let count = try? reader.read(bytes) { frame in
                if let again = try? LinkCodec.message(frame, codec), let bytes = written(again, part: part) {
                    twice += bytes
                }
                return true
            }
            return count == bytes.count
        }
        // Sets have no stable order, so the bytes are compared sorted.
        return isRead && twice.sorted() == once.sorted() ? nil : "a message changes when it is written"
    }

    private static func written(_ message: LoopMessage, part: Int) -> [UInt8]? {
        let block = LinkBlock()
        var remainder = LinkCodec.Remainder()
        LinkCodec.encode(message, part: part, into: block, &remainder) { 7 }
        return remainder.refused.isEmpty ? block.copy : nil
    }

    private static func read(_ bytes: [UInt8]) -> AnswerBatch {
        let answers = AnswerBatch()
        let reader = LinkFrameReader()
        reader.bodyLimit = LinkLimits.frameByteCount
        bytes.withUnsafeBytes { bytes in
            _ = try? reader.read(bytes) { frame in LinkCodec.forEachPublished(in: frame.body) { answers.append($0) } }
        }
        return answers
    }

    private static func written(_ answers: AnswerBatch) -> [UInt8] {
        let block = LinkBlock()
        LinkCodec.encode(answers, into: block)
        return block.copy
    }
}
