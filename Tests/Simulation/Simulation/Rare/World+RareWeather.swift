internal import Delivery
internal import Wire

/// Rare events of a gateway: store restores, loops that start without apps, and half-closed connections.
struct RareWeather {
    /// The generator of this part only.
    var chance: Chance
    fileprivate var backups: [Backup] = []
    var reports: [SimulatedReport] = []
    /// Whether the next start finds a backup.
    fileprivate(set) var wantsRestore = false
    fileprivate var epochs = [StoreHistory(ofNewStore: 1).epoch(World.queueEpoch)]

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0x4A4E_0B5E) }

    mutating func isTime() -> Bool { chance.perMille(30) }

    /// Returns whether one queue epoch belongs to a later history than another.
    func isLater(_ epoch: UInt64, than other: UInt64) -> Bool {
        guard let place = epochs.firstIndex(of: epoch), let before = epochs.firstIndex(of: other) else { return false }
        return place > before
    }
}

// Uses its own generator, so that other faults do not change.
extension World {
    func disturbRarely() {
        switch rare.chance.below(9) {
        case 0: makeBackup()
        case 1:
            guard isUp, !rare.backups.isEmpty, rare.chance.perMille(400) else { return }
            rare.wantsRestore = true
            crash()
        case 2...4: askSomeReport()
        default:
            let open = devices.filter { !$0.isFrozen && $0.link?.phase == .open }
            guard !open.isEmpty else { return }
            let device = rare.chance.one(of: open)
            let reported = rare.chance.perMille(600) ? device.alerts.last : nil
            device.halfClose(
                reporting: reported, updates: rare.chance.perMille(700), pings: rare.chance.perMille(500))
        }
    }

    // MARK: Restores

    private func makeBackup() {
        guard isUp, let rows = engine.backup() else { return }
        eventCount += 1
        log.note(now, "backup", Int64(rows.count))
        if rare.backups.count == 3 { rare.backups.remove(at: rare.chance.below(3)) }
        rare.backups.append(Backup(of: self, rows: rows))
    }

    /// Replaces the store of a stopped process with older content, which starts another history.
    func restoreSomeBackup() {
        rare.wantsRestore = false
        let backup = rare.chance.one(of: rare.backups)
        faults.note(.storeRestored)
        log.note(now, "restore", Int64(backup.rows.count))
        history = history.successor(id: rare.chance.next(), now: gatewayNow)
        rare.epochs.append(history.epoch(Self.queueEpoch))
        engine.restore(backup.rows)
        backup.putBack(into: self)
        oracle.processDied()
    }

    // MARK: Unknown apps

    /// Returns the apps that a loop knows at its start; it receives the others later.
    func appsAtStart(of loop: Int) -> [AppSettings] {
        // Without an app its feed would have gaps that the consumers do not expect.
        guard hasRareWeather, life > 1, !isHealing, !hasFeeds, rare.chance.perMille(400) else { return plan.apps }
        faults.note(.startedWithoutApps)
        queue.add(.appsKnown(loop: loop, life: life), at: now + rare.chance.time(1, 20_000))
        return plan.apps.filter { _ in rare.chance.perMille(300) }
    }

    func learnApps(_ loop: Loop) {
        eventCount += 1
        loop.unknownApps = []
        loop.shard.reload(apps: plan.apps)
        loop.perform()
    }

    // MARK: Half-closed connections, as in `DeviceSessions`

    /// Handles a half-close by the device.
    ///
    /// - Returns: whether the connection stays open for pending answers.
    func peerEnded(_ link: Link) -> Bool {
        guard link.isOpenAtGateway, link.life == life else { return false }
        guard !link.isEnding else { return true }
        guard link.phase == .open, loops[link.loop].shard.owesAnswers(link.session) else {
            oracle.checkOwed(link)
            return false
        }
        faults.note(.halfClosedWhileOwed)
        link.isEnding = true
        queue.add(.finishSession(link: link.number), at: now)
        queue.add(.endHalfClosed(link: link.number, isTimeout: true), at: now + 10_000)
        return true
    }

    func finishSession(_ link: Link) {
        guard link.isEnding, link.phase == .open, link.life == life else { return }
        eventCount += 1
        loops[link.loop].shard.finish(link.session, now: gatewayNow)
        loops[link.loop].perform()
    }

    /// Ends a half-closed connection once all pending answers are sent.
    func settled(_ link: Link) {
        guard link.isEnding, !loops[link.loop].shard.owesAnswers(link.session) else { return }
        queue.add(.endHalfClosed(link: link.number, isTimeout: false), at: now)
    }

    func endHalfClosed(_ link: Link, isTimeout: Bool) {
        guard link.isEnding, link.phase == .open, link.isOpenAtGateway, link.life == life else { return }
        eventCount += 1
        if !isTimeout {
            oracle.checkOwed(link)
        } else if !loops[link.loop].shard.owesAnswers(link.session) {
            fail(.progress, "half-closed connection \(link.number) stays though nothing is owed")
        }
        finish(link, isForgotten: false)
    }
}

extension Oracle {
    /// Checks at the end of a half-closed connection that all its updates and Pings were answered.
    func checkOwed(_ link: Link) {
        guard link.phase == .open, link.identity?.liveLink === link else { return }
        if !link.updates.isEmpty || link.owedPongs > 0 {
            fail(
                .progress,
                "half-closed connection \(link.number) ends with \(link.updates.count) updates and \(link.owedPongs) Pings unanswered"
            )
        }
    }
}
