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

    static func message(_ texts: MessageRow.Texts, _ facts: MessageFacts) -> [UInt8] {
        let vendor = texts.contents.first
        let parts = [texts.payload, texts.collapseKey, texts.alertTitle, texts.alertBody]
        let vendorParts = vendor.map { [$0.body, $0.collapseID] } ?? []
        return bytes((parts + vendorParts).reduce(128) { $0 + $1.count }) { writer in
            var badge: (kind: UInt8, value: Int32) = (0, 0)
            switch vendor?.badge {
            case .set(let value): badge = (1, value)
            case .add(let value): badge = (2, value)
            default: break
            }
            writer.put(UInt8(1))
            writer.put(facts.flags.rawValue)
            writer.put(facts.strategy.rawValue)
            writer.put(vendor.map { $0.tokenKind.rawValue | $0.pushType.rawValue << 4 } ?? 0)
            writer.put(vendor?.priority ?? 0)
            writer.put(badge.kind)
            writer.put(UInt16(texts.collapseKey.count))
            for count in [
                texts.payload.count, vendor?.body.count ?? 0, texts.alertTitle.count, texts.alertBody.count,
            ] { writer.put(UInt32(count)) }
            writer.put(UInt16(vendor?.collapseID.count ?? 0))
            writer.put(UInt16(vendor?.channel.rawValue ?? 0))
            for offset in [vendor?.messageIDOffset ?? -1, vendor?.badgeOffset ?? -1, badge.value] { writer.put(offset) }
            for word in [facts.message.high, facts.message.low, facts.task.high, facts.task.low] { writer.put(word) }
            for time in [facts.acceptedAt, facts.expiresAt, facts.fallbackAt, facts.wakeAt] { writer.put(time) }
            writer.put(facts.app.word)
            writer.put(facts.timeToLive)
            writer.put(vendor?.activity ?? 0)
            for part in parts + vendorParts { writer.put(part) }
        }
    }
}

extension JobRow {
    /// The row as the first version wrote it, the last time that it did.
    var firstVersionBytes: [UInt8] {
        let count = JobRow.firstByteCount + 5 + StepBytes.byteCount(steps) + LeaseBytes.byteCount(leases)
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes { bytes in
            var writer = RowWriter(bytes)
            writer.put(JobRow.firstVersion)
            writer.put(state.rawValue)
            let bits: [Bool] = [badgeApplied, isCollapsed, isBadgeTakenBack, isAlertCounted]
            writer.put(bits.enumerated().reduce(UInt8(0)) { $1.element ? $0 | 1 << UInt8($1.offset) : $0 })
            for byte in [facts.strategy.rawValue, facts.flags.rawValue, facts.table.rawValue] { writer.put(byte) }
            writer.put(attempts)
            let words = [
                facts.message.high, facts.message.low, facts.task.high, facts.task.low, facts.cid.high, facts.cid.low,
                facts.app.word, facts.item,
            ]
            for word in words { writer.put(word) }
            let times = [facts.acceptedAt, facts.expiresAt, facts.fallbackAt, facts.wakeAt, facts.timeToLive]
            for time in times { writer.put(time) }
            writer.put(facts.byteCount &- UInt32(MessageRow.chargeBesideRow))
            writer.put(settledOutcome)
            writer.put(channelBits | sentKind.rawValue)
            writer.put(facts.channels.rawValue)
            writer.put(dueAt)
            for word in [lease.0, lease.1] { writer.put(word) }
            writer.put(leasedUntil)
            for word in [settledLease.0, settledLease.1, sentToken] { writer.put(word) }
            writer.put(alertedAt)
            StepBytes.write(steps, &writer)
            LeaseBytes.write(leases, &writer)
            writer.put(badgeChange)
            writer.put(badgeRound)
        }
        return bytes
    }
}
