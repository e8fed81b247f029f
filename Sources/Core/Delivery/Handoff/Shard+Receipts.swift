// Receipts: what a device reports over HTTPS, without a session. A notification service extension makes the call while
// the app is dead. The rules of the events are those of Feedback frames (Shard+Feedback).

internal import Structures
internal import Wire

extension Shard {
    /// Takes a device's events in order; `.receiptAnswered` follows when what it tells is durable.
    ///
    /// Nothing of it is a sign of presence: reachability and the time when the device was last seen stay as they are.
    package mutating func receipt(_ command: ReceiptCommand, now: GatewayTime) {
        begin(now)
        // Before the device is looked for: every caller may know the gateway's time.
        guard isWithinClock(command.timestamp) else {
            return answer(command, .clockSkew(serverTime: self.now))
        }
        // The gateway that sent it here serves the app; this one does not know that yet.
        guard apps.isServed(command.app) else { return answer(command, .busy) }
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .failed, .crowded: return shard.answer(command, .busy)
            case .unknown:
                // As much work as for a known device.
                _ = shard.verifier.isProof(command.proof, of: command.transcript, secret: Self.noSecret)
                return shard.answer(command, .refused)
            case .ready: break
            }
            guard shard.isProven(command, slot) else { return shard.answer(command, .refused) }
            shard.whileBusy(slot) { shard, done in
                shard.take(command.events[...], of: slot, after: [], completion: done)
            } then: { shard, verdicts in
                shard.pump(slot)
                shard.answer(command, .taken(verdicts))
            }
        }
    }

    private static let noSecret = [UInt8](repeating: 0, count: 32)

    private func isProven(_ command: ReceiptCommand, _ slot: DeviceSlot) -> Bool {
        let isProof = verifier.isProof(command.proof, of: command.transcript, secret: profile(slot).secret)
        let device = devices.at(slot)
        return isProof && apps[Int(device.value.appIndex)].key == command.app
    }

    /// Records events one after another; the device is held until the end of this.
    private mutating func take(
        _ events: ArraySlice<ReceiptEvent>, of slot: DeviceSlot, after verdicts: [EventVerdict],
        completion: @escaping (inout Shard, [EventVerdict]) -> Void
    ) {
        guard let event = events.first else { return completion(&self, verdicts) }
        // Its time is the device's word: not before the message, not in the future.
        let at = event.at == 0 ? now : min(now, max(event.message.acceptedAtMilliseconds, event.at))
        let report = DeviceReport(
            kind: event.kind, action: event.action, message: event.message, at: at, isOfNotification: true)
        record(report, of: slot) { shard, verdict in
            shard.take(events.dropFirst(), of: slot, after: verdicts + [verdict], completion: completion)
        }
    }

    private mutating func answer(_ command: ReceiptCommand, _ answer: ReceiptAnswer) {
        whenDurable(.told(.receiptAnswered(command.origin, answer)))
    }
}
