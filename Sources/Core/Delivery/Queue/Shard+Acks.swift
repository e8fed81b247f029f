internal import Structures
package import Wire

/// The ranges of an ack's frame.
///
/// `@safe`: the gateway keeps the frame valid during the call, and the ranges are not used afterwards.
@safe private struct AckedRanges {
    private let ranges: UnsafeBufferPointer<SequenceRange>

    init(_ ranges: UnsafeBufferPointer<SequenceRange>) { unsafe self.ranges = ranges }

    var highest: UInt64 { unsafe ranges.reduce(0) { max($0, $1.last) } }

    func contain(_ sequence: UInt64) -> Bool {
        unsafe ranges.contains { $0.first <= sequence && sequence <= $0.last }
    }
}

extension Shard {
    /// Settles the messages that the device acked in stream 0.
    ///
    /// Only messages sent in this session count. A number above the highest assigned one closes the session.
    package mutating func acknowledge(
        _ session: SessionRef, cumulative: UInt64, ranges: UnsafeBufferPointer<SequenceRange>, now: GatewayTime
    ) {
        begin(now)
        guard let slot = device(of: session) else { return }
        let device = devices.at(slot)
        device.value.lastHeardAt = self.now
        var highest = cumulative
        let named = unsafe AckedRanges(ranges)
        highest = max(highest, named.highest)
        guard highest < device.value.nextSequence || isPlanted(.ackAboveHighestAccepted) else {
            numbers.acksAboveHighest &+= 1
            close(slot, .badAck, "an ack above the highest sequence ever given")
            return
        }
        // The value is read now, because the device's queue record is freed when its last message ends.
        let offeredBelow = device.value.offeredBelow
        var settled = 0
        var next = device.value.firstMessage
        inBatches(of: slot) { shard in
            while next != .none {
                let message = next
                let entry = shard.messages.at(message)
                next = entry.value.next
                let sequence = entry.value.facts.item
                guard sequence <= highest else { break }
                guard entry.value.flags.contains(.sentHere) || shard.isPlanted(.ackOfUnsentCounts),
                    sequence <= cumulative || named.contain(sequence)
                else { continue }
                shard.nextChange()
                shard.end(
                    entry.value.facts, entry.value.isOffline ? .deliveredOffline : .delivered, message: message,
                    job: entry.value.job)
                settled += 1
            }
        }
        if settled == 0 || highest >= offeredBelow { numbers.acksIgnored &+= 1 }
        pump(slot)
    }

    /// Ends a message that the app cannot process, so that it does not block the window.
    package mutating func reject(
        _ session: SessionRef, stream: UInt32 = 0, sequence: UInt64, reason: String, now: GatewayTime
    ) {
        begin(now)
        guard let slot = device(of: session) else { return }
        devices.at(slot).value.lastHeardAt = self.now
        guard let message = listedMessage(table: stream == 1 ? .broadcast : .message, item: sequence, of: slot),
            messages.at(message).value.flags.contains(.sentHere)
        else {
            numbers.acksIgnored &+= 1
            return
        }
        let kept = isPlanted(.reasonUncut) ? reason : reason.bounded(Limits.reasonByteCount)
        let detail = kept.isEmpty ? "rejectedByClient" : "rejectedByClient: " + kept
        inBatch(of: slot) { shard in
            shard.end(
                shard.messages.at(message).value.facts, .failed, reason: detail, message: message,
                job: shard.messages.at(message).value.job)
        }
        // The session's next Pong waits until the rejection is durable. Only after that Pong do the client's positions name the
        // message.
        awaitDisk(session)
        pump(slot)
    }

    mutating func endAcked(_ acked: [MessageSlot], _ slot: DeviceSlot) {
        guard !acked.isEmpty else { return }
        inBatches(of: slot) { shard in
            for message in acked {
                shard.nextChange()
                let entry = shard.messages.at(message)
                shard.end(
                    entry.value.facts, entry.value.isOffline ? .deliveredOffline : .delivered, message: message,
                    job: entry.value.job)
            }
        }
    }

    mutating func readTrace(
        _ message: MessageID, bucket: Bucket, completion: @escaping (inout Shard, Found<TraceRow>) -> Void
    ) {
        let key = StoreKey(bucket, .trace, message)
        switch store.young(key) {
        case .found(let location, _):
            let row = TraceRow(store.bytes(at: location), of: message)
            completion(&self, row.map { .found($0) } ?? .absent)
        case .deleted: completion(&self, .absent)
        case .unknown:
            if store.isCertainlyAbsent(key) {
                completion(&self, .absent)
                return
            }
            read([.get(key)]) { shard, reply in
                guard case .row(let stored)? = reply.results.first else { return completion(&shard, .unreadable) }
                let row = stored.flatMap { TraceRow($0.bytes, of: message) }
                completion(&shard, row.map { .found($0) } ?? .absent)
            }
        }
    }
}

extension StreamPosition {
    /// The highest sequence that the position names.
    var highest: UInt64 { ranges.reduce(sequence) { max($0, $1.last) } }

    /// Returns whether the position names the sequence as processed.
    func names(_ sequence: UInt64) -> Bool {
        sequence <= self.sequence || ranges.contains { $0.first <= sequence && sequence <= $0.last }
    }
}

extension String {
    /// Returns the longest prefix of whole characters with at most `byteCount` bytes of UTF-8.
    func bounded(_ byteCount: Int) -> String {
        guard utf8.count > byteCount else { return self }
        var kept = ""
        for character in self {
            if kept.utf8.count + character.utf8.count > byteCount { break }
            kept.append(character)
        }
        return kept
    }
}
