internal import Delivery
internal import LongwireClient
internal import Wire

/// Checks rows, effects and clients against the promises.
///
/// Its expectations come from the simulator: published messages, device reports, received messages. It reads rows only to learn
/// when something became durable.
final class Oracle: StoreWitness {
    unowned(unsafe) var world: World!
    /// The state of each part.
    var counting = CountingModel()
    var requests = RequestModel()
    var settlements = SettlementModel()
    var traces = TraceModel()
    var reports = ReportModel()
    var updates = UpdateModel()
    var overflows = OverflowModel()
    var vendorRows: [StoreKey: Record] = [:]

    func record(_ id: MessageID) -> Record? {
        let index = Int(id.low & 0xFFFF_FFFF)
        guard index < world.records.count, world.records[index].digest == id.low else { return nil }
        return world.records[index]
    }

    var now: GatewayTime { world.gatewayNow }
    func fail(_ kind: ViolationKind, _ text: @autoclosure () -> String) { world.fail(kind, text()) }

    // MARK: Rows as they are written

    func rowWritten(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, ticket: Ticket) {
        updates.wrote(ticket)
        switch key.table {
        case .message, .vendorMessage: messageWritten(key, bytes, ticket)
        case .job: jobWritten(key, bytes)
        case .trace: traceWritten(key, bytes, ticket)
        case .device: deviceWritten(key, bytes, ticket)
        case .taskMessage: ledgerWritten(key, bytes, ticket)
        case .counters, .request, .meta, .alias, .tag, .task, .taskEvent, .taskTargets, .taskGroup,
            .broadcast, .feed, .upstream, .event, .taskCallback, .attributes:
            break
        }
    }

    // MARK: Rows as they become durable

    /// The changes of a batch, for checks after all of them are known.
    struct DurableBatch {
        var removed: [Record] = []
        var ended: [Record] = []
        var sequences: [(Identity, UInt64)] = []
        /// The place of changed counters.
        var counted: UInt64?
    }

    func batchBecameDurable(_ operations: [SimulatedStore.Operation], ticket: Ticket) {
        var batch = DurableBatch()
        for operation in operations {
            switch operation {
            case .put(let key, let value): rowBecameDurable(key, value.bytes, &batch)
            case .add: fail(.books, "a change came without its sum")
            case .delete(let key): deletionBecameDurable(key, &batch)
            }
        }
        checkQueue(batch)
        checkCounters(batch)
    }

    private func rowBecameDurable(_ key: StoreKey, _ bytes: UnsafeRawBufferPointer, _ batch: inout DurableBatch) {
        switch key.table {
        case .message, .vendorMessage: messageBecameDurable(key, bytes, &batch)
        case .job: jobBecameDurable(bytes)
        case .trace: traceBecameDurable(key, bytes, &batch)
        case .device: deviceBecameDurable(key, bytes)
        case .counters: countersBecameDurable(key, bytes, &batch)
        case .taskMessage: ledgerBecameDurable(key, bytes)
        case .feed: feedBecameDurable(key, bytes)
        case .request, .meta, .alias, .tag, .task, .taskEvent, .taskTargets, .taskGroup, .broadcast,
            .upstream, .event, .taskCallback, .attributes:
            break
        }
    }

    private func deletionBecameDurable(_ key: StoreKey, _ batch: inout DurableBatch) {
        switch key.table {
        case .message, .vendorMessage: messageDeletionBecameDurable(key, &batch)
        case .job: record(MessageID(high: key.ownerHigh, low: key.ownerLow))?.durableJob = nil
        case .device:
            // A device that was not seen again within a day, so the store dropped it.
            world.identity(DeviceID(high: key.ownerHigh, low: key.ownerLow))?.wasLost = true
        default: break
        }
    }

    // MARK: The process dies

    func processDied() {
        recordsFellBack()
        identitiesFellBack()
        for link in world.links where link.phase != .closed {
            link.inFlight = []
            link.inFlightBytes = 0
        }
        for record in world.records where record.isPending && record.broadcast == nil {
            record.identity.pendingCount += 1
        }
        settlements.processDied()
    }

    func logged(_ event: LogEvent) {
        if event.level == .error, "\(event.name)" != "storeReadFailed" {
            fail(.books, "the gateway logged \(event.name): \(event.text)")
        }
        if "\(event.name)" == "positionBeyondQueue" { fail(.sequence, "a position was beyond what was given") }
    }

    // MARK: The end

    /// Checks at the end that every accepted message has one final state, nothing is pending, and all counters agree.
    func checkEnd() {
        for loop in world.loops {
            for table in [StoreKey.Table.message, .vendorMessage, .job] {
                let count = loop.store.rowCount(table)
                if count > 0 { return fail(.progress, "\(count) rows are left in \(table)") }
            }
            let numbers = loop.shard.statistics
            let gauges = [
                ("messages", numbers.messagesInMemory), ("jobs", numbers.jobsInMemory),
                ("due", VendorChannel.allCases.reduce(0) { $0 + numbers[$1].dueJobs }),
                ("held", VendorChannel.allCases.reduce(0) { $0 + numbers[$1].heldJobs }),
                ("leased", VendorChannel.allCases.reduce(0) { $0 + numbers[$1].leasedJobs }),
                ("waiting", numbers.waitingCommands),
                ("effects", numbers.pendingEffects), ("pending", Int(numbers.pending)),
            ]
            for (name, value) in gauges where value != 0 {
                let open = world.records.first { $0.everDurable && $0.durableFinal == nil }
                let text = open.map {
                    ", message \($0.index), strategy \($0.strategy), broadcast \($0.broadcast?.index ?? -1)"
                }
                return fail(.progress, "\(value) \(name) are left in memory\(text ?? "")")
            }
        }
        for record in world.records {
            if record.durableTable != nil || record.everDurable && record.durableFinal == nil {
                return fail(.progress, "message \(record.index) is still pending")
            }
            if let outcome = record.outcome, outcome.code == .accepted,
                self.record(outcome.message)?.durableFinal == nil
            {
                return fail(.progress, "publish \(record.index) was accepted, but its message never ended")
            }
        }
        checkTotals()
        checkQueuedBytes()
        checkReported()
        checkFeeds()
        for device in world.devices where !device.isLiar {
            guard let identity = device.identity, identity.liveLink != nil else {
                return fail(.progress, "device \(device.index) did not come back: \(device.core.isStopped)")
            }
        }
        checkSettled()
        checkTaskTotals()
        if world.violation == nil { checkBroadcasts() }
        checkTraces()
    }
}
