internal import Delivery
internal import LongwireClient
internal import Wire

/// A phone: the real client core, the app's message handler, and storage that survives the app.
final class SimulatedDevice {
    let index: Int
    let app: Int
    let isLiar: Bool
    unowned let world: World
    var core: ClientCore
    /// The state that the app finds at its start.
    private var stored: ClientState?
    var link: Link?
    /// Messages that are handled, but not yet stored as handled.
    private var unstored: [Record] = []
    var isFrozen = false
    /// The offset of its clock.
    private var skew: Int64 = 0
    private var wakeAt: Int64 = .max
    private var tokenNumber = 0
    /// Alerts on the screen that the user has not tapped.
    var alerts: [Record] = []
    /// Received messages, from which dishonest devices choose.
    private(set) var seen: [Record] = []
    var badge: Int32 = 0

    init(index: Int, app: Int, isLiar: Bool, world: World) {
        (self.index, self.app, self.isLiar, self.world) = (index, app, isLiar, world)
        core = Self.makeCore(world, index: index, app: app, state: nil)
        if world.chance.perMille(200) { skew = world.chance.time(-400_000, 400_000) }
        tokenNumber = 1
        if world.chance.perMille(850) { core.configuration.tokens = [token] }
    }

    private static func makeCore(_ world: World, index: Int, app: Int, state: ClientState?) -> ClientCore {
        var configuration = ClientConfiguration(
            host: "gateway", port: 7_000, appID: world.plan.apps[app].appID, appSecret: World.appSecret)
        configuration.keepsRunning = index % 3 == 1
        configuration.replaysOpened = index % 5 == 4
        return ClientCore(
            configuration: configuration, state: state, cryptography: SystemCryptography(), seed: world.chance.next())
    }

    private var token: VendorToken {
        let channel = world.plan.channels[(index + tokenNumber) % world.plan.channels.count]
        return VendorToken(
            channel: channel, kind: .alert, token: "\(Self.prefix(of: channel))token-\(index)-\(tokenNumber)")
    }

    /// The beginning of a channel's tokens.
    static func prefix(of channel: VendorChannel) -> String { channel == .apns ? "" : "\(channel.name)-" }

    /// A token of another kind; activities start and end, and calls have a token, too.
    private var otherToken: VendorToken {
        let text = tokenNumber % 7 == 0 ? "" : "other-\(index)-\(tokenNumber)"
        return switch tokenNumber % 4 {
        case 0: VendorToken(kind: .voip, token: text)
        case 1: VendorToken(kind: .liveActivityStart, token: text, activity: "Ride")
        default: VendorToken(kind: .liveActivity, token: text, activity: "activity-\(tokenNumber / 3 % 11)")
        }
    }
    private var time: ClientTime { ClientTime(monotonic: world.now, wall: World.gatewayStart + world.now + skew) }
    var identity: Identity? { core.state.cid.isNone ? nil : world.identity(core.state.cid) }

    // MARK: Callbacks

    func start() {
        core.start(at: time)
        turn()
    }

    func connected() {
        core.connected(at: time)
        turn()
    }

    /// The longest reason that a frame allows, which exceeds the limit of a row.
    private static let longReason = String(repeating: "r", count: Wire.Limits.reasonByteCount)

    func connectionLost(_ reason: String) {
        link = nil
        core.disconnected(reason: reason, at: time)
        turn()
    }

    /// Receives bytes on the socket; a frozen app's bytes stay in the kernel.
    func received(_ link: Link, _ bytes: [UInt8]) {
        guard self.link === link else { return }
        world.log.note(world.now, "client received", Int64(index), Int64(link.number), Int64(bytes.count))
        if isFrozen {
            link.unread += bytes
        } else {
            link.toClient.consumedOffset += bytes.count
            core.receive(bytes, at: time)
            turn()
        }
    }

    func hungUp(_ link: Link) {
        link.isOpenAtClient = false
        guard self.link === link else { return }
        if isFrozen { return }  // The app notices at its resume.
        connectionLost("closed")
    }

    func wake() {
        guard world.now >= wakeAt else { return }
        wakeAt = .max
        guard !isFrozen else { return }
        if let deadline = core.deadline, deadline <= world.now { world.eventCount += 1 }
        core.wake(at: time)
        turn()
    }

    // MARK: Actions of the user and the system

    func perform(_ command: ClientCommand) {
        core.perform(command, at: time)
        turn()
    }

    /// Suspends the app; the socket stays open and its buffers fill.
    func freeze(announced: Bool) {
        guard !isFrozen else { return }
        world.eventCount += 1
        if announced {
            world.faults.note(.clientFrozen)
            perform(.applicationState(.background, keepsRunning: false))
        } else {
            world.faults.note(.clientFrozenUnannounced)
        }
        isFrozen = true
        world.queue.add(.resume(device: index), at: world.now + world.chance.time(500, 60_000))
    }

    func resume() {
        guard isFrozen else { return }
        world.eventCount += 1
        isFrozen = false
        // The foreground notification may arrive before or after the app's thread reads the socket.
        let readsFirst = world.chance.perMille(500)
        if !readsFirst { perform(.applicationState(.foreground, keepsRunning: core.configuration.keepsRunning)) }
        if let link, !link.unread.isEmpty {
            let bytes = link.unread
            link.unread = []
            link.toClient.consumedOffset += bytes.count
            core.receive(bytes, at: time)
            turn()
        }
        if let link, !link.isOpenAtClient { connectionLost("closed while frozen") }
        core.wake(at: time)
        turn()
        if readsFirst { perform(.applicationState(.foreground, keepsRunning: core.configuration.keepsRunning)) }
    }

    /// Kills and restarts the app, which loses its unstored state.
    func crash(tapping opened: Record? = nil) {
        world.eventCount += 1
        world.faults.note(.clientCrashed)
        if let link { dropLink(link, isSilent: world.chance.perMille(200)) }
        for record in unstored { record.handling = .none }
        unstored = []
        isFrozen = false
        let tokens = core.configuration.tokens
        core = Self.makeCore(world, index: index, app: app, state: stored)
        core.configuration.tokens = tokens
        if world.chance.perMille(300) {
            core.configuration.applicationState = .background
        }
        if let opened {
            noteOpened(opened)
            core.perform(.opened(opened.id), at: time)
        }
        start()
    }

    /// Reconnects while the gateway still has the older session.
    func reconnectOverLive() {
        guard let link, !isFrozen else { return }
        world.faults.note(.clientReconnectedOverLive)
        world.eventCount += 1
        link.isOpenAtClient = false
        link.toGateway.isDead = true
        link.toClient.isDead = true
        connectionLost("the network changed")
    }

    func changeToken() {
        world.faults.note(.tokenChanged)
        tokenNumber += 1
        if tokenNumber % 3 == 0 { perform(.token(otherToken)) }
        if world.chance.perMille(150) {
            let channel = world.plan.channels[tokenNumber % world.plan.channels.count]
            perform(.token(VendorToken(channel: channel, kind: .alert, token: "")))
        } else {
            perform(.token(token))
        }
    }

    func open(_ record: Record) {
        world.faults.note(.openedNotification)
        noteOpened(record)
        perform(.opened(record.id))
    }

    private func noteOpened(_ record: Record) { record.openedByUser = true }

    func skewClock() {
        world.faults.note(.clockSkewed)
        skew = world.chance.time(-600_000, 600_000)
    }

    // MARK: Doing what the core says

    private func turn() {
        repeat {
            perform(core.takeActions())
            core.endTurn(at: time)
        } while !core.actions.isEmpty
        if let deadline = core.deadline, deadline < wakeAt {
            wakeAt = max(deadline, world.now + 1)
            world.queue.add(.clientWake(device: index), at: wakeAt)
        }
    }

    private func perform(_ actions: [ClientAction]) {
        for (index, action) in actions.enumerated() {
            switch action {
            case .connect: link = world.dial(self)
            case .send(let bytes): send(bytes)
            case .disconnect:
                if let link { dropLink(link, isSilent: false) }
                link = nil
            case .report(let event): reported(event)
            case .withdraw: break
            case .handle(let message): core.finish(message, handle(message))
            case .revoke(let task, let sequence):
                reported(.revoked(task))
                core.finishRevoke(sequence)
            case .persist(let state):
                if !world.isHealing, world.chance.perMille(world.plan.clientStoreTrouble) {
                    world.faults.note(.clientStoreFailed)
                    world.log.note(world.now, "not persisted", Int64(index))
                    let error = LongwireClientError(code: .stateUnwritable, message: "injected")
                    return core.persistFailed(error, skipping: actions[(index + 1)...], at: time)
                }
                stored = state
                world.log.note(world.now, "persisted", Int64(index), Int64(state.streams[0]?.sequence ?? 0))
                for record in unstored where record.handling == .volatile { record.handling = .persisted }
                unstored = []
            }
        }
    }

    private func send(_ bytes: [UInt8]) {
        guard let link, link.isOpenAtClient, !link.isHalfClosed else { return }
        var bytes = bytes
        if bytes[0] == FrameType.hello.rawValue, !world.isHealing {
            world.log.note(world.now, "client hello", Int64(index), Int64(link.number))
            if world.chance.perMille(world.plan.networkWeight / 4) {
                world.faults.note(.helloDamaged)
                link.helloWasDamaged = true
                bytes[world.chance.below(bytes.count)] ^= 1 << UInt8(world.chance.below(8))
            }
        } else if isLiar, bytes[0] == FrameType.ack.rawValue, !world.isHealing {
            guard let lie = lie(bytes) else { return }
            bytes = lie
        }
        world.transmit(link, toGateway: true, bytes)
    }

    private func dropLink(_ link: Link, isSilent: Bool) {
        guard link.isOpenAtClient else { return }
        link.isOpenAtClient = false
        if isSilent {
            (link.toGateway.isDead, link.toClient.isDead) = (true, true)
        } else if link.isHalfClosed {
            world.queue.add(.hangUp(link: link.number, toGateway: true, offset: -1), at: world.now + 1)
        } else {
            world.sendEnd(link, toGateway: true)
        }
    }

    /// Reports, sends a Ping, closes the sending half of the connection, and continues to read.
    func halfClose(reporting opened: Record?, updates: Bool, pings: Bool) {
        guard let link, link.isOpenAtClient, link.phase == .open, !isFrozen, !link.isHalfClosed else { return }
        world.eventCount += 1
        world.faults.note(.halfClosed)
        if updates { perform(.badge(Int32(world.rare.chance.between(-2, 30)))) }
        var frames: [UInt8] = []
        if let opened {
            var feedback = Feedback()
            (feedback.kind, feedback.messageID) = (.shown, opened.id)
            feedback.appendFrame(to: &frames)
        }
        if pings { Ping(nonce: UInt64(world.now)).appendFrame(to: &frames) }
        guard self.link === link, link.isOpenAtClient else { return }
        world.transmit(link, toGateway: true, frames)
        link.isHalfClosed = true
        world.sendEnd(link, toGateway: true)
    }

    private func handle(_ message: ReceivedMessage) -> MessageVerdict {
        guard let record = world.oracle.handled(message, by: self) else { return .processed }
        // Dishonest devices only lie about stream 0.
        if isLiar, record.broadcast == nil { seen.append(record) }
        world.log.note(world.now, "handled", Int64(index), Int64(record.index), Int64(message.sequence))
        if !world.isHealing, world.chance.perMille(world.plan.handlerTrouble) {
            if world.chance.perMille(500) {
                world.faults.note(.handlerDeferred)
                return .deferred
            }
            world.faults.note(.handlerRejected)
            record.rejectedByClient = true
            (record.handling, record.handledUnder) = (.volatile, core.state.queueEpoch)
            unstored.append(record)
            record.wasHandled = true
            return .rejected(reason: Self.longReason)
        }
        if record.handling != .none, record.handledUnder == core.state.queueEpoch {
            world.fail(.handledTwice, "device \(index) handled message \(record.index) again")
        }
        (record.handling, record.handledUnder) = (.volatile, core.state.queueEpoch)
        record.wasHandled = true
        unstored.append(record)
        return .processed
    }

    private func reported(_ event: ClientEvent) {
        switch event {
        case .suppressed(let id, _, let wasOpened):
            if wasOpened { world.oracle.record(id)?.wasSuppressedAsOpened = true }
        case .revoked(let task):
            for record in world.records where record.identity.device == index {
                if let old = record.revokes, world.task(of: old) == task { record.wasHandled = true }
            }
        case .stopped(let error):
            // The gateway's Close forbids reconnects, so the app starts the client again.
            world.oracle.clientStopped(self, error)
        case .queueReset(let from, let to):
            guard !world.rare.isLater(to, than: from) else { return }
            world.fail(.sequence, "the queue epoch of device \(index) changed from \(from) to \(to)")
        default: break
        }
    }

    // MARK: Lies

    /// Returns a dishonest device's frame in place of an ack; `nil` sends nothing.
    private func lie(_ bytes: [UInt8]) -> [UInt8]? {
        var ack = Ack()
        switch world.chance.below(6) {
        case 0: return nil
        case 1:
            world.faults.note(.lyingAckTooHigh)
            ack.positions = [StreamPosition(sequence: UInt64(world.chance.between(1, 1 << 40)))]
        case 2:
            world.faults.note(.lyingAck)
            guard let record = seen.last else { return bytes }
            ack.positions = [
                StreamPosition(
                    ranges: [SequenceRange(first: record.sequence &+ 1, last: record.sequence &+ 1)])
            ]
        case 3:
            world.faults.note(.lyingAck)
            // The numbers of an earlier registration now belong to other messages.
            let own = seen.filter { $0.identity === identity }
            guard !own.isEmpty else { return bytes }
            let record = world.chance.one(of: own)
            record.rejectedByClient = true
            ack.rejected = [Rejected(sequence: record.sequence, reason: Self.longReason)]
        case 4:
            world.faults.note(.lyingFeedback)
            guard !world.records.isEmpty else { return bytes }
            let record = world.chance.one(of: world.records)
            if record.identity.device == index { record.openedByUser = true }
            var feedback = Feedback()
            feedback.kind = world.chance.one(of: [.opened, .shown, .action])
            feedback.messageID = record.id
            var frame: [UInt8] = []
            feedback.appendFrame(to: &frame)
            return frame
        default: return bytes
        }
        var frame: [UInt8] = []
        ack.appendFrame(to: &frame)
        return frame
    }

    /// Loses its positions, as a restored backup does.
    func forgetPositions() {
        guard isLiar, !isFrozen else { return }
        world.faults.note(.forgetfulHello)
        stored?.streams = [:]
        for record in world.records where record.identity.device == index { record.handling = .none }
        crash()
    }
}
