// A shard over the in-memory store that records all effects.

package import Delivery
package import Wire

package final class SecretAsProof: ProofVerifier {
    package init() {}
    package func isProof(_ proof: [UInt8], of transcript: [UInt8], secret: [UInt8]) -> Bool { proof == secret }
    package func messageDigest(of task: TaskID, for cid: DeviceID) -> UInt64 {
        (task.low ^ cid.low &* 0x9E37_79B9_7F4A_7C15) &* 0xD6E8_FEB8_6659_FD93 ^ cid.high
    }
    package func tokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName {
        testTokenName(app: app, channel: channel, kind: kind, token: token)
    }
}

/// Derives a row name from a token; collisions are unlikely among a test's few tokens.
package func testTokenName(app: AppKey, channel: VendorChannel, kind: TokenKind, token: String) -> AliasName {
    var word = app.word &+ UInt64(channel.rawValue) << 8 &+ UInt64(kind.rawValue)
    for byte in (channel == .apns ? token.lowercased() : token).utf8 {
        word = (word ^ UInt64(byte)) &* 0x100_0000_01B3 &+ 0x9E37_79B9
    }
    return AliasName(high: word &* 0xD6E8_FEB8_6659_FD93, low: word, text: "")
}

package final class TestFrames: BroadcastEncoder {
    package init() {}
    package func frame(
        of row: MessageRow, number: UInt64, isOffline: Bool, isCarriedByVendor: Bool, alertedAt: GatewayTime,
        attempt: UInt32
    ) -> EncodedBroadcast {
        let frame = DeliverFrame(
            stream: 1, sequence: number, messageID: MessageID(high: .max, low: .max), taskID: row.taskID,
            payload: row.payload, isOffline: isOffline, acceptedAt: UInt64(max(0, row.acceptedAt)),
            alertedAt: UInt64(max(0, alertedAt)), attempt: attempt, collapseKey: row.collapseKey,
            alertTitle: row.alertTitle, alertBody: row.alertBody, isCarriedByVendor: isCarriedByVendor)
        var bytes = [UInt8](repeating: 0, count: frame.byteCount)
        bytes.withUnsafeMutableBytes { _ = frame.encode(into: $0) }
        return EncodedBroadcast(bytes: bytes, messageIDOffset: frame.messageIDOffset)
    }
}

package struct Phone {
    package var cid: DeviceID
    package var bucket: Bucket
    package var secret: [UInt8]
    package var session: SessionRef
}

/// Runs one shard on `MemoryShardStore`; only the test advances time.
package final class DeliveryHarness: ShardStoreObserver {
    /// A Deliver frame, copied when the gateway would encode it.
    package struct Delivered: Equatable {
        package var session: SessionRef
        package var sequence: UInt64
        package var message: MessageID
        package var payload: String
        package var isOffline: Bool
        package var alertedAt: GatewayTime
        package var attempt: UInt32
        package var stream: UInt32 = 0
        package var isCarriedByVendor: Bool
    }

    package static let app = AppKey(0xA99)
    package static let otherApp = AppKey(0xB99)

    package let store: MemoryShardStore
    package var shard: Shard
    package var limits: ShardLimits
    package var apps: [AppSettings]
    package private(set) var now: GatewayTime

    package var delivered: [Delivered] = []
    package var outcomes: [UInt64: PublishOutcome] = [:]
    package var outcomeOrder: [UInt64] = []
    package var leftBeforeWelcome: [DeviceID] = []
    package var welcomes: [(session: SessionRef, welcome: Welcome)] = []
    package var closes: [(session: SessionRef, code: CloseCode)] = []
    package var pings: [SessionRef] = []
    /// The nonces of the received pongs, in order.
    package var pongs: [UInt64] = []
    package var keepAlives: [SessionRef] = []
    package var finished: [SessionRef] = []
    package var updates: [UpdateResult] = []
    package var leases: [[Job]] = []
    package var verdicts: [[ResultVerdict]] = []
    package var statuses: [DeviceStatus?] = []
    package var deviceAnswers: [DeviceAnswer] = []
    package var traces: [MessageTrace?] = []
    package var traceAnswers: [TraceAnswer] = []
    package var directoryReplies: [UInt64: DirectoryReply] = [:]
    package var tokenNews: [TokenNews] = []
    package var receipts: [ReceiptAnswer] = []
    /// Answers to shard questions by the request's number; an entry without a value is a busy answer.
    package var answers: [UInt64: (any Codable & Sendable)?] = [:]
    package var dueTasks: [TaskRecord] = []
    /// The announced broadcasts, in order; the harness forwards each to its own shard at once.
    package var launched: [TaskRecord] = []
    private var toLaunch: [TaskRecord] = []
    package var firstAcks: [FirstAck] = []
    package var logs: [LogEvent] = []
    package var jobsAvailable = 0
    /// The kinds of effects in their order, for tests of ordering.
    package var order: [String] = []

    /// Channels whose platforms each publish has a content for, besides Apple's.
    package var furtherContents: [VendorChannel] = []
    /// The delay in ms of a content for a follow-up channel.
    package var followUpDelay: Int64 = 600_000
    /// The custom callback of further publishes; empty without one.
    package var customCallback = ""
    package var vendorStrategies = VendorStrategies()

    package private(set) var history = StoreHistory(ofNewStore: 1)
    private var effects: [Effect] = []
    private var nextRequest: UInt64 = 0
    private var nextQuestion: UInt64 = 1 << 51
    private var nextSession: UInt32 = 0
    private var nextDevice: UInt64 = 0
    private var nextTask: UInt64 = 0
    private var nextLease: UInt64 = 0

    package init(
        store: MemoryShardStore = MemoryShardStore(), limits: ShardLimits = ShardLimits(),
        now: GatewayTime = 1_795_000_000_000, configure: (inout AppSettings) -> Void = { _ in }
    ) {
        (self.store, self.limits, self.now) = (store, limits, now)
        var settings = AppSettings(key: Self.app, appID: "app", apnsTopic: "com.example.app")
        configure(&settings)
        apps = [settings, AppSettings(key: Self.otherApp, appID: "other", apnsTopic: "com.example.other")]
        shard = Shard(
            limits: limits, apps: apps, store: store, verifier: SecretAsProof(), encoder: TestFrames(), queueEpoch: 7,
            counters: [], now: now)
        store.observer = self
    }

    // MARK: Store events

    package func storeCommitted(upTo ticket: Ticket) {
        shard.committed(upTo: ticket, now: now)
        drain()
    }

    package func storeReplied(_ reply: StoreReply) {
        shard.replied(reply, now: now)
        drain()
    }

    package func storeCooled(_ key: StoreKey) { shard.cooled(key) }

    /// Runs the shard and completes all store work until nothing is pending.
    package func flush() {
        drain()
        var rounds = 0
        while store.waitingBatchCount > 0 || store.waitingReadCount > 0 || shard.hasSlicesAtHand {
            rounds += 1
            // Time does not advance here, so endless work would keep a real loop busy permanently.
            precondition(rounds < 20_000, "the shard asks its store without end: \(store.waitingRequests)")
            store.sync()
            store.deliverReplies()
            while shard.hasWorkAtHand {
                shard.continueWork(now: now)
                drain()
            }
        }
    }

    package func advance(_ milliseconds: Int64) {
        now += milliseconds
        shard.advance(to: now)
        flush()
        // Runs timers that the first round has set.
        shard.advance(to: now)
        flush()
    }

    /// Advances the clock without a shard turn, so no timer runs.
    package func letTimePass(_ milliseconds: Int64) { now += milliseconds }

    /// Crashes and restarts the process.
    ///
    /// Unsynced writes are lost.
    ///
    /// - Parameter history: the store's new history, if its content was restored from a backup.
    package func crash(history: StoreHistory? = nil) {
        store.crash()
        if let history { self.history = history }
        var rows: [StoredRow] = []
        var kept: [UnsafeMutableRawBufferPointer] = []
        store.loadAll(table: .counters) { row in
            let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: row.value.count, alignment: 8)
            copy.copyMemory(from: row.value)
            kept.append(copy)
            rows.append(StoredRow(key: row.key, wakeAt: row.wakeAt, value: UnsafeRawBufferPointer(copy)))
        }
        var broadcasts = BroadcastStart()
        store.loadAll(table: .broadcast) { broadcasts.take($0) }
        shard = Shard(
            limits: limits, apps: apps, store: store, verifier: SecretAsProof(), encoder: TestFrames(), queueEpoch: 7,
            history: self.history, counters: rows,
            broadcasts: broadcasts, now: now)
        for buffer in kept { buffer.deallocate() }
        store.observer = self
    }

    package func drain() {
        shard.takeEffects(into: &effects)
        for effect in effects { record(effect) }
        while !toLaunch.isEmpty {
            let record = toLaunch.removeFirst()
            shard.launch(record, loopCount: 1, now: now)
            drain()
        }
    }

    private func record(_ effect: Effect) {
        switch effect {
        case .leftBeforeWelcome(let cid): leftBeforeWelcome.append(cid)
        case .welcome(let session, let effect):
            welcomes.append((session, effect.welcome))
            order.append("welcome")
        case .deliver(let session, let deliver):
            guard let row = MessageRow(deliver.row) else { preconditionFailure("a Deliver without a readable row") }
            delivered.append(
                Delivered(
                    session: session, sequence: deliver.sequence, message: row.messageID,
                    payload: String(decoding: row.payload, as: UTF8.self), isOffline: deliver.isOffline,
                    alertedAt: deliver.alertedAt, attempt: deliver.attempt, isCarriedByVendor: row.vendorCarriesAll))
            order.append("deliver")
        case .broadcast(let session, let broadcast):
            var frame = [UInt8](repeating: 0, count: broadcast.frame.count)
            frame.withUnsafeMutableBytes { broadcast.write(into: $0) }
            let body = Array(frame[FrameHeader.byteCount...])
            guard let deliver = body.withUnsafeBytes({ try? Deliver(decoding: $0.bytes) }) else {
                preconditionFailure("a broadcast's frame that cannot be read")
            }
            delivered.append(
                Delivered(
                    session: session, sequence: deliver.sequence, message: deliver.messageID,
                    payload: String(decoding: deliver.payload, as: UTF8.self), isOffline: deliver.offline,
                    alertedAt: GatewayTime(deliver.alertedAt), attempt: deliver.attempt, stream: deliver.stream,
                    isCarriedByVendor: deliver.carriedByVendor))
            order.append("broadcast")
        case .launched(let record):
            launched.append(record)
            toLaunch.append(record)
        case .ping(let session): pings.append(session)
        case .pong(_, let nonce): pongs.append(nonce)
        case .keepAlive(let session): keepAlives.append(session)
        case .finished(let session): finished.append(session)
        case .updated(_, let result):
            updates.append(result)
            order.append("updated")
        case .close(let session, let code, _):
            closes.append((session, code))
            order.append("close")
        case .publishAnswered(let origin, let outcome):
            outcomes[origin.request] = outcome
            outcomeOrder.append(origin.request)
            order.append("answer")
        case .leased(_, let jobs): leases.append(jobs)
        case .settled(_, let settled): verdicts.append(settled)
        case .jobsAvailable: jobsAvailable += 1
        case .deviceStatus(_, _, let answer):
            statuses.append(answer.status)
            deviceAnswers.append(answer)
        case .messageTrace(_, let answer):
            traces.append(answer.trace)
            traceAnswers.append(answer)
        case .directoryAnswered(let origin, let reply):
            directoryReplies[origin.request] = reply
            order.append("directory")
        case .receiptAnswered(_, let answer): receipts.append(answer)
        case .answered(let origin, let answer): answers.updateValue(answer, forKey: origin.request)
        case .taskDue(let record): dueTasks.append(record)
        case .firstAck(let first): firstAcks.append(first)
        case .tokens(let news): tokenNews.append(news)
        case .log(let event): logs.append(event)
        }
    }

    package var hasDueJobs: Bool { shard.hasDueJobs }
    package func hasDueJobs(for apps: Set<AppKey>) -> Bool { shard.hasDueJobs(for: apps, .apns) }
    package var statistics: ShardStatistics { shard.statistics }

    // MARK: Questions

    /// Asks a question and returns its number.
    package func begin(_ question: some ShardQuestion) -> UInt64 {
        nextQuestion += 1
        shard.ask(question, origin: Origin(route: 3, request: nextQuestion), now: now)
        return nextQuestion
    }

    /// Returns the answer to a question; `nil` if there is none, or a busy one.
    package func answer<Answer>(_ number: UInt64, as type: Answer.Type = Answer.self) -> Answer? {
        guard let answer = answers[number] ?? nil else { return nil }
        return answer as? Answer
    }

    /// Asks a question and returns its answer; `nil` if there is none, or a busy one.
    @discardableResult
    package func ask<Question: ShardQuestion>(_ question: Question) -> Question.Answer? {
        let number = begin(question)
        flush()
        return answer(number)
    }

    @discardableResult
    package func ask<Question: ShardQuestion, Value>(_ question: Question) -> Value? where Question.Answer == Value? {
        let number = begin(question)
        flush()
        return answer(number)
    }

    /// Asks a question and returns whether the answer is busy.
    package func isBusy(_ question: some ShardQuestion) -> Bool {
        let number = begin(question)
        flush()
        return isBusy(number)
    }

    package func isBusy(_ number: UInt64) -> Bool { if case .some(nil) = answers[number] { true } else { false } }

    // MARK: What a test says

    /// Sends a step and returns its number; `directoryReplies` has the reply later.
    @discardableResult
    package func send(_ step: DirectoryStep, to bucket: Bucket, app: AppKey = DeliveryHarness.app) -> UInt64 {
        nextRequest += 1
        shard.directory(
            DirectoryCommand(origin: Origin(route: 2, request: nextRequest), app: app, bucket: bucket, step: step),
            now: now)
        drain()
        return nextRequest
    }

    /// Sends a step, completes the store work and returns the reply.
    package func ask(_ step: DirectoryStep, _ bucket: Bucket, app: AppKey = DeliveryHarness.app) -> DirectoryReply? {
        let request = send(step, to: bucket, app: app)
        flush()
        return directoryReplies[request]
    }

    /// Registers a device and returns it connected.
    package func register(
        state: ApplicationState = .foreground, token: String? = nil, app: AppKey = DeliveryHarness.app,
        badge: Int32? = nil, _ adjust: (inout Hello) -> Void = { _ in }
    ) -> Phone {
        nextDevice += 1
        let cid = DeviceID(high: nextDevice &* 0x9E37_79B9, low: nextDevice)
        var phone = Phone(
            cid: cid, bucket: Bucket(UInt16(nextDevice % 3)), secret: [UInt8(truncatingIfNeeded: nextDevice), 1, 2, 3],
            session: .none)
        nextSession += 1
        phone.session = SessionRef(slot: nextSession, stamp: nextSession)
        var hello = Hello()
        hello.registration = true
        hello.timestamp = UInt64(now)
        hello.applicationState = state
        hello.badge = badge
        if let token { hello.tokens = [VendorToken(token: token)] }
        adjust(&hello)
        shard.hello(
            HelloCommand(
                session: phone.session, app: app, bucket: phone.bucket, cid: cid, newSecret: phone.secret,
                transcript: [], proof: [], hello: hello), now: now)
        flush()
        return phone
    }

    /// Connects a new session; time advances by one millisecond so that the timestamp increases.
    package func connect(
        _ phone: inout Phone, state: ApplicationState = .foreground, app: AppKey = DeliveryHarness.app,
        flushing: Bool = true, _ adjust: (inout Hello) -> Void = { _ in }
    ) {
        now += 1
        nextSession += 1
        phone.session = SessionRef(slot: nextSession, stamp: nextSession)
        var hello = Hello()
        hello.timestamp = UInt64(now)
        hello.applicationState = state
        hello.queueEpoch = 7
        adjust(&hello)
        shard.hello(
            HelloCommand(
                session: phone.session, app: app, bucket: phone.bucket, cid: phone.cid, newSecret: nil, transcript: [],
                proof: hello.proof.isEmpty ? phone.secret : hello.proof, hello: hello), now: now)
        if flushing { flush() } else { drain() }
    }

    package func disconnect(_ phone: Phone, announced: Bool = true) {
        shard.sessionEnded(phone.session, announced: announced, now: now)
        flush()
    }

    /// Publishes and returns the request's number; `outcomes` has the result later.
    @discardableResult
    package func submit(
        _ phone: Phone, _ payload: String, strategy: Strategy = .liveElseVendor, timeToLive: Int64 = 7_200_000,
        vendor: Bool = true, badge: VendorContent.Badge = .none, collapseKey: String = "",
        requestKey: (UInt64, UInt64) = (0, 0), requestDigest: UInt64 = 0, isBulk: Bool = false,
        app: AppKey = DeliveryHarness.app, kind: TokenKind = .alert, activity: String = "",
        followsRequest: Bool = false, pushType: PushType = .alert, carriesAll: Bool = true
    ) -> UInt64 {
        nextRequest += 1
        nextTask += 1
        let request = nextRequest
        // Single pushes of the push API derive the task from the request and the digest from the task.
        let task =
            followsRequest
            ? TaskID(kind: .single, month: 11, day: 18, home: phone.bucket, request: requestKey)
            : TaskID(high: 1 << 56, low: nextTask)
        let body = #"{"aps":{"alert":"x","badge":}}"#
        var (payload, collapseKey, content) = (payload, collapseKey, body)
        payload.withUTF8 { payloadBytes in
            collapseKey.withUTF8 { keyBytes in
                content.withUTF8 { bodyBytes in
                    let content = VendorContent(
                        channel: .apns, tokenKind: kind, activity: Activity.word(activity.utf8), pushType: pushType,
                        priority: 10, badge: badge,
                        body: UnsafeRawBufferPointer(bodyBytes), messageIDOffset: -1,
                        badgeOffset: badge == .none ? -1 : 28, collapseID: UnsafeRawBufferPointer(start: nil, count: 0))
                    var command = PublishCommand(
                        origin: Origin(route: 1, request: request), app: app, bucket: phone.bucket, cid: phone.cid,
                        task: task, messageDigest: task.low &* 0x9E37_79B9_7F4A_7C15,
                        strategy: strategy, timeToLive: timeToLive, requestKey: requestKey,
                        requestDigest: requestDigest, isBulk: isBulk, payload: UnsafeRawBufferPointer(payloadBytes),
                        collapseKey: UnsafeRawBufferPointer(keyBytes), vendor: vendor ? content : nil)
                    command.vendorCarriesAll = vendor && carriesAll
                    for channel in furtherContents {
                        command.contents.add(
                            VendorContent(
                                channel: channel, tokenKind: .alert,
                                activity: channel.isFollowUp ? UInt64(followUpDelay) : 0, pushType: .alert,
                                priority: 10,
                                badge: .none, body: UnsafeRawBufferPointer(bodyBytes), messageIDOffset: -1,
                                badgeOffset: -1,
                                collapseID: UnsafeRawBufferPointer(start: nil, count: 0)))
                    }
                    command.vendorStrategies = vendorStrategies
                    if carriesAll { command.carryingPlatforms = PlatformSet(rawValue: .max) }
                    Array(customCallback.utf8).withUnsafeBytes { text in
                        command.customCallback = text
                        shard.publish(command, now: now)
                    }
                }
            }
        }
        drain()
        return request
    }

    /// Publishes, completes the store work and returns the result.
    package func publish(
        _ phone: Phone, _ payload: String = "p", strategy: Strategy = .liveElseVendor, timeToLive: Int64 = 7_200_000,
        vendor: Bool = true, badge: VendorContent.Badge = .none, collapseKey: String = "",
        requestKey: (UInt64, UInt64) = (0, 0), requestDigest: UInt64 = 0, isBulk: Bool = false,
        app: AppKey = DeliveryHarness.app, kind: TokenKind = .alert, activity: String = "",
        followsRequest: Bool = false, pushType: PushType = .alert, carriesAll: Bool = true
    ) -> PublishOutcome {
        let request = submit(
            phone, payload, strategy: strategy, timeToLive: timeToLive, vendor: vendor, badge: badge,
            collapseKey: collapseKey, requestKey: requestKey, requestDigest: requestDigest, isBulk: isBulk, app: app,
            kind: kind, activity: activity, followsRequest: followsRequest, pushType: pushType, carriesAll: carriesAll)
        flush()
        guard let outcome = outcomes[request] else { preconditionFailure("a publish was not answered") }
        return outcome
    }

    package func acknowledge(_ phone: Phone, _ cumulative: UInt64, ranges: [SequenceRange] = []) {
        ranges.withUnsafeBufferPointer {
            shard.acknowledge(phone.session, cumulative: cumulative, ranges: $0, now: now)
        }
        flush()
    }

    package func update(_ phone: Phone, _ adjust: (inout DeviceUpdate) -> Void) {
        var update = DeviceUpdate()
        adjust(&update)
        shard.update(phone.session, update, now: now)
        flush()
    }

    package func become(_ state: ApplicationState, _ phone: Phone) { update(phone) { $0.applicationState = state } }

    package func lease(
        _ limit: Int = 100, milliseconds: Int64 = 60_000, apps: Set<AppKey>? = nil, channel: VendorChannel = .apns
    ) -> [Job] {
        nextLease += 1
        shard.lease(
            LeaseCommand(
                origin: Origin(route: 2, request: nextLease), channel: channel, apps: apps, limit: limit,
                leaseMilliseconds: milliseconds,
                leaseID: (9, nextLease)), now: now)
        flush()
        return leases.last ?? []
    }

    @discardableResult
    package func settle(
        _ job: Job, _ outcome: JobResult.Outcome, reason: String = "", timestamp: GatewayTime = 0,
        retryAfter: Int64 = 0, apps: Set<AppKey>? = nil, vendorID: String = ""
    ) -> ResultVerdict.Verdict {
        shard.settle(
            [
                JobResult(
                    job: job.message, leaseID: job.leaseID, outcome: outcome, reason: reason, vendorID: vendorID,
                    timestamp: timestamp,
                    retryAfterMilliseconds: retryAfter)
            ], apps: apps, origin: .none, now: now)
        flush()
        return verdicts.last?.first?.verdict ?? .unknownJob
    }

    package func extend(_ job: Job, milliseconds: Int64, apps: Set<AppKey>? = nil) -> ResultVerdict.Verdict {
        shard.extend([(job.message, job.leaseID)], milliseconds: milliseconds, apps: apps, origin: .none, now: now)
        flush()
        return verdicts.last?.first?.verdict ?? .unknownJob
    }

    package func feedback(_ phone: Phone, _ kind: Feedback.Kind, _ message: MessageID) {
        var feedback = Feedback()
        feedback.kind = kind
        feedback.messageID = message
        shard.feedback(phone.session, feedback, now: now)
        flush()
    }

    /// Sends a device's HTTPS receipt and completes the store work; returns `nil` unless exactly one reply arrives.
    package func receipt(
        _ phone: Phone, _ events: [ReceiptEvent], app: AppKey = DeliveryHarness.app, proof: [UInt8]? = nil,
        clockAhead skew: Int64 = 0
    ) -> ReceiptAnswer? {
        receipts.removeAll()
        sendReceipt(phone, events, app: app, proof: proof, clockAhead: skew)
        flush()
        return receipts.count == 1 ? receipts[0] : nil
    }

    /// Sends a device's HTTPS receipt; `receipts` has the reply later.
    package func sendReceipt(
        _ phone: Phone, _ events: [ReceiptEvent], app: AppKey = DeliveryHarness.app, proof: [UInt8]? = nil,
        clockAhead skew: Int64 = 0
    ) {
        shard.receipt(
            ReceiptCommand(
                origin: .none, app: app, bucket: phone.bucket, cid: phone.cid, timestamp: UInt64(max(0, now + skew)),
                transcript: [], proof: proof ?? phone.secret, events: events), now: now)
        drain()
    }

    package func trace(_ message: MessageID) -> MessageTrace? {
        shard.trace(of: message, origin: .none, now: now)
        flush()
        return traces.last ?? nil
    }

    package func trace(
        _ task: TaskID, _ app: AppKey, _ cid: DeviceID, _ bucket: Bucket, digest: UInt64
    ) -> MessageTrace? {
        traces.removeAll()
        shard.trace(of: task, app, cid: cid, bucket: bucket, digest: digest, origin: .none, now: now)
        flush()
        return traces.last ?? nil
    }

    package func finalState(_ message: MessageID) -> FinalState? { trace(message)?.finalState }

    package func status(_ phone: Phone, app: AppKey = DeliveryHarness.app) -> DeviceStatus? {
        shard.status(of: phone.cid, bucket: phone.bucket, app: app, origin: .none, now: now)
        flush()
        return statuses.last ?? nil
    }

    /// Returns and clears the deliveries recorded since the last call.
    package func takeDelivered() -> [Delivered] {
        defer { delivered.removeAll() }
        return delivered
    }

    package func rowCount(_ table: StoreKey.Table) -> Int { store.visibleRows.keys.filter { $0.table == table }.count }

    /// Returns an error unless accepted = Σ final states + pending, over the stored counters and messages.
    package func imbalance() -> String? {
        var accepted: UInt64 = 0
        var ended: UInt64 = 0
        store.loadAll(table: .counters) { row in
            guard let counters = CountersRow(row.value) else { return }
            accepted += counters.accepted
            ended += counters.ended
        }
        let pending = UInt64(rowCount(.message) + rowCount(.vendorMessage))
        return accepted == ended + pending ? nil : "accepted \(accepted), ended \(ended), pending \(pending)"
    }
}
