internal import Cryptography
internal import Delivery
internal import Wire

// Receipts: a device's service extension reports shown alerts over HTTPS, independent of the device's connection. Calls are
// repeated, reordered or forged, and contain several events.
extension World {
    /// Lets the extension report an alert that the vendor showed.
    func extensionSaw(_ record: Record) {
        guard hasReceipts, !isHealing, receipts.chance.perMille(400) else { return }
        var events: [(record: Record, kind: Feedback.Kind, action: UInt32)] = [(record, .shown, 0)]
        if receipts.chance.perMille(200) { events.append((record, .shown, 0)) }
        if receipts.chance.perMille(200) {
            events.append((record, .action, UInt32(90_001 + receipts.chance.below(3))))
        }
        if receipts.chance.perMille(100), record.identity.isHonest {
            record.openedByUser = true
            events.append((record, .opened, 0))
            if receipts.chance.perMille(500) {
                faults.note(.receiptOutOfOrder)
                events.swapAt(0, events.count - 1)
            }
        }
        if receipts.chance.perMille(100) {
            faults.note(.receiptOfOther)
            events.append((receipts.chance.one(of: records), .shown, 0))
        }
        var character = SimulatedReceipt.Character.honest
        switch receipts.chance.below(20) {
        case 0: character = .forged
        case 1: character = .skewed
        default: break
        }
        for event in events where event.record.identity === record.identity {
            event.record.isReportedByExtension = true
        }
        let number = receipts.add(SimulatedReceipt(identity: record.identity, events: events, character: character))
        queue.add(.receipt(number), at: now + receipts.chance.time(1, 6_000))
        if receipts.chance.perMille(300) {
            faults.note(.receiptRepeated)
            queue.add(.receipt(number), at: now + receipts.chance.time(1, 40_000))
        }
    }

    func makeReceipt(_ number: Int) {
        guard isUp else { return }
        eventCount += 1
        let call = receipts.calls[number]
        let (identity, app) = (call.identity, plan.apps[call.identity.app])
        log.note(now, "receipt", Int64(number), Int64(identity.index), Int64(call.events.count))
        var timestamp = gatewayNow
        var secret = identity.secret
        switch call.character {
        case .honest: break
        case .forged:
            faults.note(.receiptForged)
            secret[0] ^= 1
        case .skewed:
            faults.note(.receiptSkewed)
            timestamp -= plan.limits.clockTolerance + 1
        }
        let transcript = Array("\(app.appID) \(number) \(timestamp)".utf8)
        let events = call.events.map { event in
            // An unaccepted message has no id yet. The id of a message that does not exist takes its place.
            let id =
                event.record.id.isNone
                ? MessageID(bucket: identity.bucket, acceptedAt: gatewayNow, digest: 1) : event.record.id
            return ReceiptEvent(kind: event.kind, message: id, action: event.action, at: gatewayNow)
        }
        receipts.noteLeased(number)
        let loop = loop(of: identity.bucket)
        loop.shard.receipt(
            ReceiptCommand(
                origin: Origin(route: 6, request: UInt64(number)), app: app.key, bucket: identity.bucket,
                cid: identity.cid, timestamp: UInt64(timestamp), transcript: transcript,
                proof: HMACSHA256.code(key: secret, message: transcript), events: events), now: gatewayNow)
        loop.perform()
    }
}
