internal import Delivery
internal import Wire

extension Oracle {
    /// Checks the gateway's report of a first ack, which must be durable before the siblings are ended.
    func firstAckTold(_ first: FirstAck) -> SimulatedTask? {
        guard let record = record(first.message), let task = record.task, task.firstAckWins, task.id == first.task
        else {
            fail(.content, "a first ack won that nobody asked for")
            return nil
        }
        guard let state = record.durableFinal, Self.isFirstAck(state) else {
            fail(.beforeSync, "message \(record.index) won before its ack was durable")
            return nil
        }
        return task
    }

    private static func isFirstAck(_ state: FinalState) -> Bool {
        state == .delivered || state == .deliveredOffline || state == .opened
    }

    func noteFirstAck(_ record: Record, _ state: FinalState) {
        guard let task = record.task, task.firstAckWins, task.wonAt == 0, Self.isFirstAck(state) else { return }
        task.wonAt = max(1, world.now)
        world.faults.note(.firstAckWon)
    }

    /// Handles a shard's report that no message is pending for this device.
    func siblingEnded(_ record: Record) {
        if record.durableTable != nil {
            fail(.finalState, "message \(record.index) is pending though the first ack of its task has ended it")
        }
        record.endedBySiblingIn = world.life
    }

    /// Checks a message that is accepted for its device.
    func checkLetIn(_ record: Record, _ identity: Identity) {
        if record.endedBySiblingIn == world.life {
            fail(.finalState, "message \(record.index) was accepted after the first ack of its task had ended it")
        }
        guard let broadcast = record.dealt else { return }
        if identity.isBlacklisted {
            fail(.strategy, "message \(record.index) was accepted for a blacklisted device")
        }
        if identity.registeredAt > broadcast.launchedAt + 50 {
            fail(.content, "message \(record.index): its device registered after broadcast \(broadcast.index)")
        }
        if broadcast.isSwept {
            fail(.finalState, "message \(record.index) was accepted after broadcast \(broadcast.index) was stopped")
        }
    }

    private var areAlarmsPrompt: Bool { world.plan.limits.alarmBatch > 100 }

    /// Checks that no sibling ends in another way long after the first ack.
    func checkOvertaken(_ record: Record, _ state: FinalState) {
        guard let task = record.task, task.wonAt > 0, state != .revoked, areAlarmsPrompt,
            record.durableTable != nil, record.durableSince <= task.wonAt,
            world.now - max(task.wonAt, world.startedAt) > 400_000
        else { return }
        fail(
            .finalState,
            "message \(record.index) ended as \(state) \(world.now - task.wonAt) ms after the first ack of its task")
    }

    /// Checks that minutes after a first ack no earlier message of its siblings is pending, whichever process died.
    func checkWinners() {
        guard areAlarmsPrompt else { return }
        for task in world.tasks where task.wonAt > 0 {
            for record in task.records where record.durableTable != nil && record.durableSince <= task.wonAt {
                return fail(
                    .progress,
                    "message \(record.index) is pending \(world.now - task.wonAt) ms after the first ack of its task")
            }
        }
    }

    /// Checks that every first ack is marked as settled in its shard.
    func checkSettled() {
        for loop in world.loops {
            loop.store.loadAll(table: .taskMessage) { stored in
                guard let row = RowInspection.ledger(stored.key, stored.value), row.isFirstAck,
                    stored.wakeAt < row.acceptedAt + world.plan.limits.reportRetention
                else { return }
                fail(.progress, "the siblings of message \(row.message.low & 0xFFFF_FFFF) were not seen to")
            }
        }
    }
}
