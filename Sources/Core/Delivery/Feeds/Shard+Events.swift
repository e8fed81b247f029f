// The path of an event to the app's feed. The batch of a change also writes the event's row. The event is then appended at the
// feed's home, and the row is deleted. Durable events are thus reported at least once, in order per device. An app without the
// feed costs one check of its settings per event.

internal import Structures
internal import Wire

extension Shard {
    /// Writes an event of the open batch's device, if its app has the feed.
    @inline(__always)
    mutating func noteEvent(
        _ kind: FeedItem.Kind, message: MessageID = .none, task: TaskID = .none, reason: String = "",
        detail: FeedItem.Detail = .none, hasCallback: Bool = false
    ) {
        guard apps[Int(devices.at(batch.device).value.appIndex)].mayHaveEvents else { return }
        writeEvent(kind, message, task, reason, detail, hasCallback)
    }

    private mutating func writeEvent(
        _ kind: FeedItem.Kind, _ message: MessageID, _ task: TaskID, _ reason: String, _ detail: FeedItem.Detail,
        _ hasCallback: Bool
    ) {
        let device = devices.at(batch.device)
        let (bucket, app) = (device.value.bucket, apps[Int(device.value.appIndex)].key)
        let limit: Int
        switch apps[Int(device.value.appIndex)].eventRule {
        case .off: return
        case .kept(let limits): limit = limits.count
        case .counted:
            events.apps[app, default: .init()].unsure &+= 1
            return
        }
        guard events.apps[app, default: .init()].rowCount < limit else {
            events.apps[app, default: .init()].lost &+= 1
            numbers.eventsLost &+= 1
            return
        }
        var item = FeedItem(kind, at: now, cid: device.value.cid)
        (item.message, item.task, item.awaitsCallback) = (message, task, hasCallback)
        if detail != .none { item.detail = detail }
        if !reason.isEmpty { item.payload = Array(reason.utf8) }
        let entry = EventTable.Entry(bucket: bucket, number: events.nextNumber(now), item: item)
        let items = [item][...]
        store.putRow(
            EventBatch.key(entry, app), wakeAt: 0, prior: .none, byteCount: FeedRow.byteCount(items)
        ) { FeedRow.write(items, into: $0) }
        batch.rowCount += 1
        events.apps[app, default: .init()].note(entry)
    }

    /// Writes the custom callback of a message's task in the open batch, unless the bucket has a recent row with it.
    ///
    /// `createdAt` is the task's creation time, or 0 if it is unknown. A known time gives each write of the row the same alarm.
    mutating func noteCallback(_ text: [UInt8], of facts: MessageFacts, createdAt: GatewayTime) {
        guard !text.isEmpty else { return }
        let key = CallbackRow.key(facts.task, in: facts.bucket)
        if case .found = store.young(key) { return }
        let end =
            facts.task.hasLedger
            ? (createdAt > 0 ? createdAt : facts.acceptedAt) + limits.reportRetention
            : facts.expiresAt + limits.callbackRetention
        store.putRow(key, wakeAt: end, prior: .maybe(wakeAt: end), byteCount: CallbackRow.byteCount(text)) {
            CallbackRow.write(text, into: $0)
        }
        batch.rowCount += 1
        if let app = apps.index(of: facts.app) { apps.addCallback(app, byteCount: CallbackRow.byteCount(text)) }
    }

    mutating func notePresence(_ kind: FeedItem.Kind, of slot: DeviceSlot) {
        guard apps[Int(devices.at(slot).value.appIndex)].mayHaveEvents, !batch.isOpen, batch.series == .none else {
            return
        }
        inBatch(of: slot) { $0.noteEvent(kind) }
    }

    /// See `EventTable.take`.
    package mutating func takeEvents(_ share: LoopShare, now: GatewayTime) -> [EventBatch] {
        begin(now)
        return events.take(share, &core)
    }

    /// See `EventTable.told`.
    package mutating func eventsTold(_ batch: EventBatch, isTold: Bool, now: GatewayTime) {
        begin(now)
        events.told(batch, isTold: isTold, &core)
    }

    package var hasEvents: Bool { apps.entries.contains { $0.mayHaveEvents } }
}
