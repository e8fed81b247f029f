import Wire

@testable import Delivery

/// Rows as versions of the gateway up to store format 6 wrote them: today's code only reads them.
enum EarlierRows {
    static func bytes(_ count: Int, _ write: (inout RowWriter) -> Void) -> [UInt8] {
        var bytes = [UInt8](repeating: 0xEE, count: count)
        bytes.withUnsafeMutableBytes {
            var writer = RowWriter($0)
            write(&writer)
            precondition(writer.offset == count, "an earlier row of \(writer.offset) bytes, not \(count)")
        }
        return bytes
    }

    static func trace(
        _ facts: MessageFacts, _ finalState: FinalState, isOffline: Bool, sentAt: GatewayTime, endedAt: GatewayTime,
        job: JobRow?, reason: String
    ) -> [UInt8] {
        var steps = [MessageTrace.Step(event: .accepted, time: facts.acceptedAt)]
        if sentAt > 0 { steps.append(MessageTrace.Step(event: .sent, time: sentAt)) }
        steps += job?.steps ?? []
        let isAcked = finalState == .delivered || finalState == .deliveredOffline
        steps.append(
            MessageTrace.Step(event: isAcked ? .acked : finalState == .opened ? .opened : .ended, time: endedAt))
        let leases = job?.leases ?? []
        let count =
            8 + 11 * 8 + 16 + RowWriter.byteCount(text: reason) + StepBytes.byteCount(steps) + 2
            + LeaseBytes.byteCount(leases)
        return bytes(count) { writer in
            let bits: [Bool] = [isOffline, facts.flags.contains(.sendCounted), job?.isBadgeTakenBack ?? false]
            writer.put(UInt8(1))
            writer.put(finalState.rawValue)
            writer.put(bits.enumerated().reduce(UInt8(0)) { $0 | ($1.element ? 1 << UInt8($1.offset) : 0) })
            writer.put(facts.strategy.rawValue)
            writer.put(job?.attempts ?? 0)
            writer.put(job?.settledOutcome ?? 0)
            writer.put(facts.table.rawValue)
            for word in [
                facts.message.high, facts.message.low, facts.task.high, facts.task.low, facts.cid.high, facts.cid.low,
                facts.app.word, facts.item,
            ] { writer.put(word) }
            for number in [facts.acceptedAt, facts.expiresAt, facts.timeToLive] { writer.put(number) }
            writer.put(job?.settledLease.0 ?? 0)
            writer.put(job?.settledLease.1 ?? 0)
            writer.put(text: reason)
            StepBytes.write(steps, &writer)
            writer.put(facts.fallback.state.rawValue)
            writer.put(facts.fallback.reason.rawValue)
            LeaseBytes.write(leases, &writer)
        }
    }
}
