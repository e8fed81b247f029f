// Receipts: a device's reports over HTTPS without a session. A notification service extension calls while the app is not running.
// The rules of the events are those of Feedback frames (Shard+Feedback).

internal import Structures
internal import Wire

extension Shard {
    /// Records a device's events in order.
    ///
    /// `.receiptAnswered` follows when all of them are durable.
    ///
    /// A receipt does not change the device's reachability or last-seen time.
    package mutating func receipt(_ command: ReceiptCommand, now: GatewayTime) {
        begin(now)
        // This check may precede the proof, because the gateway's time is no secret.
        guard isWithinClock(command.timestamp) else {
            return answer(command, .clockSkew(serverTime: self.now))
        }
        // The sending gateway serves the app, but this gateway does not have the app's latest settings yet.
        guard apps.isServed(command.app) else { return answer(command, .busy) }
        whenReady(deviceSlot(command.cid, bucket: command.bucket)) { shard, slot, readiness in
            switch readiness {
            case .failed, .crowded: return shard.answer(command, .busy)
            case .unknown:
                // An unknown device must take as much time as a known one.
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

    /// Records events one after another while the device is held.
    private mutating func take(
        _ events: ArraySlice<ReceiptEvent>, of slot: DeviceSlot, after verdicts: [EventVerdict],
        completion: @escaping (inout Shard, [EventVerdict]) -> Void
    ) {
        guard let event = events.first else { return completion(&self, verdicts) }
        // The device's time is limited to the range from the message's acceptance to now.
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
