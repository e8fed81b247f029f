import Quotas
import Delivery
import Directory
import Wire

@testable import Gateway
@testable import PushAPI

/// A message of each case and an answer of each, as gateways could send them.
///
/// Enumerations list the names of the cases. A switch without a default derives the name from a message, so a new case does not
/// compile without a name. A test fails for a name without a sample.
enum LinkSamples {
    static let parts = 16
    static let bucket = Bucket(0x123)
    static var part: Int { bucket.loop(of: parts) }
    static let app = AppKey(0xA1B2_C3D4_E5F6_0718)
    static let cid = DeviceID(high: 0x1111_2222_3333_4444, low: 0x5555_6666_7777_8888)
    static let task = TaskID(kind: .list, month: 11, day: 23, home: bucket, random: (7, 9))
    static let time: GatewayTime = 1_795_000_000_000
    static let message = MessageID(bucket: bucket, acceptedAt: time, digest: 0xDEAD_BEEF)

    static func origin(_ kind: Route.Kind, _ request: UInt64 = 1) -> Origin {
        Route(kind, node: 1, loop: 3, slot: 5, stamp: 6).origin(request)
    }

    static var content: MessageContent {
        var lengths = MessageContent.Lengths()
        (lengths.payload, lengths.collapseKey, lengths.alertTitle, lengths.alertBody) = (5, 3, 2, 4)
        (lengths.vendorBody, lengths.vendorCollapseID) = (40, 2)
        return MessageContent(
            strategy: .liveElseVendor, timeToLive: 7_200_000,
            vendor: MessageContent.Vendor(
                channel: .apns, tokenKind: .alert, activity: 3, pushType: .alert, priority: 10, badge: .add(2),
                messageIDOffset: 1, badgeOffset: 36),
            lengths: lengths, arena: (0..<lengths.sum).map { UInt8($0) })
    }

    static var record: TaskRecord {
        var record = TaskRecord(
            id: task, app: app, state: .scheduled, createdAt: time, validUntil: time + 5, scheduleAt: time + 3,
            group: "spring", content: content)
        (record.firedAt, record.resumeAt) = (time + 1, time + 2)
        return record
    }

    static var broadcast: TaskRecord {
        let home = app.home
        var record = TaskRecord(
            id: TaskID(kind: .app, month: 1, day: 2, home: home, random: (1, 2)), app: app, state: .open,
            createdAt: time, validUntil: time, content: content)
        var plan = BroadcastPlan(audience: expression, speed: 500)
        (plan.number, plan.launchedAt, plan.expiresAt, plan.position) = (9, time, time + 9, 17)
        record.broadcast = plan
        return record
    }

    static var broadcastPiece: AppBroadcasts {
        var piece = AppBroadcasts(app: app, head: 12, after: 8)
        piece.records = [broadcast]
        piece.end(with: 10)
        return piece
    }

    static var expression: TagExpression {
        var expression = TagExpression()
        _ = expression.add(.any, [tag("red"), tag("green")])
        _ = expression.add(.none, [tag("old")])
        return expression
    }

    static func tag(_ text: String) -> TagName { TagName(digest: UInt64(text.utf8.count) << 8 | 1, text: text) }

    static var alias: AliasName {
        AliasName(high: UInt64(bucket.index) << 52 | 5, low: 6, type: 7, text: "ann")
    }

    static func withCommand(request: UInt64 = 1, _ body: (PublishCommand) -> Void) {
        let payload = Array("payload".utf8), key = Array("key".utf8), title = Array("title".utf8)
        let vendorBody = [UInt8](repeating: 0x61, count: 60), collapse = Array("c".utf8)
        payload.withUnsafeBytes { payload in
            key.withUnsafeBytes { key in
                title.withUnsafeBytes { title in
                    vendorBody.withUnsafeBytes { vendorBody in
                        collapse.withUnsafeBytes { collapse in
                            var command = PublishCommand(
                                origin: origin(.sender, request), app: app, bucket: bucket, cid: cid, task: task,
                                messageDigest: 77, strategy: .vendorElseLive, timeToLive: -1, requestKey: (3, 4),
                                requestDigest: 5, isBulk: true, payload: payload, collapseKey: key, alertTitle: title,
                                alertBody: payload,
                                vendor: VendorContent(
                                    channel: .apns, tokenKind: .voip, activity: 8, pushType: .voip, priority: 5,
                                    badge: .set(-3), body: vendorBody, messageIDOffset: 28, badgeOffset: 60,
                                    collapseID: collapse))
                            command.taskCreatedAt = time
                            (command.revokes, command.revokedDigest) = (task, 99)
                            (command.firstAckWins, command.vendorCarriesAll) = (true, true)
                            command.customCallback = title
                            body(command)
                        }
                    }
                }
            }
        }
    }

    static func batch(_ count: Int, _ origins: (Int) -> Origin = { origin(.sender, UInt64($0)) }) -> CommandBatch {
        let batch = CommandBatch()
        for index in 0..<count {
            withCommand { command in
                var command = command
                command.origin = origins(index)
                batch.append(command)
            }
        }
        return batch
    }

    static var fanout: Fanout {
        var revoking = ListTarget(cid: cid, bucket: bucket, digest: 4)
        revoking.revokedDigest = 5
        let other = DeviceID(high: 9, low: 10)
        return Fanout(
            task: task, app: app, createdAt: time, content: content, isBulk: true,
            route: origin(.list).route,
            targets: [(0, revoking), (7, ListTarget(cid: other, bucket: bucket, digest: 6))])
    }

    static var share: LoopShare { LoopShare(index: part, count: parts) }

    // MARK: Messages

    static var requests: [any PartitionRequest] {
        [
            LeaseCommand(
                origin: .none, channel: .apns, apps: [app], limit: 500, leaseMilliseconds: 30_000, leaseID: (1, 2)),
            LeaseCommand(
                origin: .none, channel: .apns, apps: nil, limit: 0, leaseMilliseconds: 1, leaseID: (.max, .max)),
            SettleJobs(
                results: JobResult.Outcome.allCases.map {
                    JobResult(
                        job: message, leaseID: (3, 4), outcome: $0, reason: "BadDeviceToken", vendorID: "v",
                        timestamp: time, retryAfterMilliseconds: 5)
                }, apps: [app]),
            TakeReceipts(
                receipts: [
                    VendorReceipt(
                        message: message, app: AppKey(7), channel: .vivo, kind: .clicked, token: "t", at: 9)
                ], apps: nil),
            ExtendLeases(items: [ExtendItem(job: message, leaseID: (5, 6))], milliseconds: 7, apps: nil),
            DeviceStatusRequest(device: address), DeviceStatusRequest(device: address, readsAttributes: true),
            MessageTraceRequest(message: message),
            TaskMessageRequest(task: task, app: app, cid: cid, bucket: bucket, digest: 4),
            ReceiptCommand(
                origin: .none, app: app, bucket: bucket, cid: cid, timestamp: .max, transcript: [1, 2, 3],
                proof: [4, 5],
                events: [
                    ReceiptEvent(kind: .action, message: message, action: 3, at: time),
                    ReceiptEvent(kind: .shown, message: message),
                ]),
        ]
            + directorySteps.map { step -> any PartitionRequest in
                let isCount = if case .count = step { true } else { false }
                return DirectoryCommand(
                    origin: .none, app: app, bucket: isCount ? Bucket(UInt16(part)) : bucket, step: step)
            } + shardQuestions
    }

    /// Requests without an answer.
    static var notices: [any PartitionRequest] {
        let home = app.home.loop(of: parts)
        return [
            LaunchBroadcast(record: broadcast),
            TellBroadcasts(home: home, logs: [AppBroadcasts(app: app, head: 12, records: [broadcast])]),
            OfferBroadcasts(home: home),
        ]
    }

    static var news: [GatewayNews] {
        [
            .jobsAvailable(.apns, part: 3), .taskChanged(task), .tokenRevoked(token), .appsChanged(8),
            .broadcastEnded(task, app),
        ]
    }

    /// A message of each kind that a link carries, with its partition.
    static var sent: [(message: LoopMessage, part: Int)] {
        let messages: [LoopMessage] =
            [.publishes(batch(3)), .list(fanout)] + requests.map { .request($0, origin(.request)) }
            + notices.map { .request($0, .none) } + news.map { .news($0) }
        return messages.map { ($0, part) } + gatewayRequests.map { (.request($0, origin(.request)), 0) }
    }

    enum StepCase: CaseIterable {
        case reserve, release, members, setAlias, clearAlias, holds, replaceTags, addTags, removeTags, setBlacklisted,
            setBadge, describe, count, takeToken, loseToken, confirmToken

        init(_ step: DirectoryStep) {
            switch step {
            case .reserve: self = .reserve
            case .release: self = .release
            case .members: self = .members
            case .setAlias: self = .setAlias
            case .clearAlias: self = .clearAlias
            case .holds: self = .holds
            case .replaceTags: self = .replaceTags
            case .addTags: self = .addTags
            case .removeTags: self = .removeTags
            case .setBlacklisted: self = .setBlacklisted
            case .setBadge: self = .setBadge
            case .describe: self = .describe
            case .count: self = .count
            case .takeToken: self = .takeToken
            case .loseToken: self = .loseToken
            case .confirmToken: self = .confirmToken
            }
        }
    }

    static var directorySteps: [DirectoryStep] {
        [
            .reserve(alias, cid, bucket), .release(alias, [AliasEntry(cid: cid, bucket: bucket, stamp: time)]),
            .members(alias), .setAlias(cid, alias, stamp: time), .clearAlias(cid, alias, stamp: 0),
            .holds(cid, alias, stamp: -1), .replaceTags(cid, [tag("a"), tag("bc")]), .addTags(cid, [tag("é")]),
            .removeTags(cid, [tag("")]), .setBlacklisted(cid, true), .setBadge(cid, .add(-4)), .setBadge(cid, .set(5)),
            .describe(cid), .describe(cid, readsAttributes: true), .count(expression, first: part, stride: parts),
            .takeToken(alias, AliasEntry(cid: cid, bucket: bucket, stamp: time), lost: nil),
            .takeToken(
                alias, AliasEntry(cid: cid, bucket: bucket, stamp: 1),
                lost: AliasEntry(cid: cid, bucket: bucket, stamp: time)),
            .loseToken(cid, alias, stamp: time), .confirmToken(cid, alias, stamp: 0),
        ]
    }

    /// Its home is in the part.
    static var feed: FeedName { FeedName(AppKey(0x1230_0000_0000_0001), .upstream) }

    static var feedItem: FeedItem {
        var item = FeedItem(.upstream, at: time, cid: cid)
        (item.message, item.task, item.request, item.payload) = (message, task, 7, [1, 2])
        return item
    }

    static var feedPage: FeedPage {
        var page = FeedPage(first: 4, state: feedState)
        (page.items, page.missed) = ([feedItem], 3)
        return page
    }

    static var feedState: FeedState {
        var state = FeedState()
        (state.last, state.acked, state.count, state.byteCount) = (4, 3, 2, 1)
        return state
    }

    static var shardQuestions: [any PartitionRequest] { taskQuestions + reportQuestions + inspections + feedCommands }

    static var call: CallKey { CallKey(high: UInt64(bucket.index) << 52, low: 8) }

    private static var taskQuestions: [any PartitionRequest] {
        [
            CreateTask(record, key: call, digest: 3), CreateTask(record, key: .none, digest: 0), LoadTask(task, app),
            ChangeTask(task, app, .cancel), ParkTargets(task, app, [cid, .none]), ReadTargets(task, from: .max),
            SweepTask(task, app, share), StopSingle(task, app), KeepSiblings(task, [cid]),
            EndSibling(task, address, digest: 5),
            SettleFirstAck(FirstAck(task: task, app: app, message: message)),
            BeginCall(call, digest: 6, task, [cid]), EndCall(call, [outcome(.accepted)]), EndCall(call, nil),
            JoinGroup(task, GroupPlace(bucket: bucket, owner: (7, 8))),
            ReadGroup(GroupPlace(bucket: bucket, owner: (9, .max))),
            ScanBroadcast(record: broadcast, purpose: .close(.expired), buckets: 16..<32, share: share),
            ScanBroadcast(record: broadcast, purpose: .enumerate, buckets: 0..<4_096, share: share),
            ScanBroadcast(record: broadcast, purpose: .deal, buckets: 5..<5, share: share),
            AdvanceBroadcast(task, app, position: 4_096, during: .ending), LiveBroadcasts(share),
            LiveBroadcasts(share, BroadcastPiece(from: BroadcastPlace(app: app, number: 7), byteCount: 9)),
            BroadcastHeads(share),
        ]
    }

    private static var reportQuestions: [any PartitionRequest] {
        [
            TaskTotalsQuery(task, app, share), DayQuery(app, day: 20_000), FoldableQuery(today: 20_001),
            RemoveCounters([CounterDay(app: app, day: 3)], share, isCounted: false),
            RemoveCounters([CounterDay(app: app, day: 4)], share, isCounted: true), OnlineQuery(),
        ]
    }

    private static var inspections: [any PartitionRequest] {
        [
            RecentQuery(address, limit: 500), RequestQuery(app, [call], tasks: [task], share), CallQuery(call),
            SingleQuery(task, app), DeviceListQuery(app, after: DeviceCursor(address), limit: 1, share),
            DeviceListQuery(app, after: nil, limit: 2, share), JobsQuery(apps: [app], limit: 3),
            JobsQuery(apps: nil, limit: 4), ChangeDevice(address, .purge),
            LeasedJobsQuery(leases: [LeaseKey((1, 2)), LeaseKey((3, 4))]),
        ]
    }

    private static var feedCommands: [any PartitionRequest] {
        let commands: [FeedCommand] = [
            .upstream(UpstreamMessage(app: feed.app, cid: cid, request: 1, payload: [2], task: task)),
            .append(FeedName(feed.app, .events), [feedItem], lost: 2),
            .read(FeedRead(feed, after: 1, limit: 2, waitMilliseconds: 3)),
            .read(FeedRead(feed, after: nil, limit: 2, waitMilliseconds: 0)), .acknowledge(feed, upTo: 4),
            .state(feed),
        ]
        return commands
    }

    static var address: DeviceAddress { DeviceAddress(app: app, bucket: bucket, cid: cid) }

    static var token: TokenID { TokenID(expiresAt: time, random: .max) }

    // MARK: Questions about the gateway's own rows

    static var gatewayRequests: [any PartitionRequest] {
        [
            RevokeToken(token: token), OnlinePointsRequest(app: app), OnlinePeakRequest(app: app, day: 20_000),
            StartRowsRequest(), CountRates(reports: [report]), AppNewsRequest(since: 9),
            CountQueues(
                queues: [AppQueue(app: app, count: -70_000, bytes: -1 << 40), AppQueue(app: app, count: 1)]),
            ChangeApp(change: AppChange(.rotate, appID: "shop", body: Array("{}".utf8))),
        ] + testDeviceRequests.map { TestDevicesCall(request: $0, known: [cid], limit: 5) }
    }

    static var report: RateReport {
        RateReport(
            key: RateKey(app: app, kind: .fastTagBroadcast), minute: RateCount(span: time / 60_000, used: 3),
            inMinute: 2,
            day: RateCount(span: time / 86_400_000, used: 70_000), inDay: .max >> 33)
    }

    typealias Answered = (type: any PartitionRequest.Type, answer: any Codable & Sendable)

    static var gatewayAnswers: [Answered] {
        var book = TestDeviceList()
        book.put(TestDevice(cid: cid, remark: "Ann's", createdAt: time, updatedAt: time), app: app)
        let results = testDeviceRequests.map { book.perform($0, known: [], limit: 5, now: time).result }
        var folded = FoldedDays()
        folded.days = [CounterDay(app: app, day: 4)]
        folded.totals = [CounterDay(app: app, day: 3)]
        let news = AppNews(since: 3, history: 9, head: 8, all: [managed.key], changed: [managed], isLast: true)
        let shown = [ShownSecret(name: "appSecret", exposed: "made-for-you")]
        return [
            (CountQueues.self, Optional([AppQueue(app: app, count: 1 << 40, bytes: 1 << 46)])),
            (CountRates.self, Optional([RateTotal(key: report.key, minute: report.minute, day: report.day)])),
            (RevokeToken.self, true), (RevokeToken.self, false),
            (OnlinePointsRequest.self, Optional([OnlinePoint(time: time, count: 3)])),
            (OnlinePeakRequest.self, Optional(9)), (OnlinePeakRequest.self, Int?.none),
            (
                StartRowsRequest.self,
                Optional(StartRowsRequest.Rows(folded: folded, revoked: [token], appsVersion: 8))
            ),
            (ChangeApp.self, Optional(AppResult.done(managed, isNew: true, shown: shown))),
            (ChangeApp.self, Optional(AppResult.refused(.conflict, "no"))), (AppNewsRequest.self, Optional(news)),
        ] + results.map { (TestDevicesCall.self, Optional($0)) }
    }

    static var managed: ManagedApp {
        ManagedApp(
            appID: "shop", appKey: "shopKey", appSecrets: [ManagedSecret(exposed: "secret-one", until: time)],
            masterSecrets: [ManagedSecret(exposed: "master-one")], settings: #"{"maxAttempts":3}"#, isEnabled: false,
            createdAt: time, changedAt: time, version: 8)
    }

    /// One request of each kind, as the API parses it.
    static var testDeviceRequests: [TestDeviceRequest] {
        let works: [TestDeviceRequest.Work] = [
            .add([TestDeviceRequest.Item(place: DevicePlace(cid: cid, bucket: bucket), remark: "Ann's")]),
            .update(cid, "Bob's"), .delete([cid]), .list(TestDeviceRequest.Query(cid: nil, remark: "Ann", page: 2)),
        ]
        return works.map { TestDeviceRequest(app: app, work: $0, notCIDs: ["x"]) }
    }

    // MARK: Answers

    static func outcome(_ code: PublishOutcome.Code) -> PublishOutcome {
        PublishOutcome(
            code: code, cid: cid, message: message, task: task, isLive: true, fallback: .armed,
            fallbackReason: .noToken, timeToLive: -1, isRepeat: true, endedAs: .collapsed)
    }

    static var publishAnswers: [LoopAnswer] {
        let codes: [PublishOutcome.Code] = [
            .accepted, .unknownDevice, .queueFull, .noToken, .requestConflict, .requestPending, .busy, .storeFailed,
            .ignored, .stopped, .tooLarge,
        ]
        let plain = PublishOutcome(code: .accepted, cid: cid, task: task)
        return codes.map { .published(origin(.push), outcome($0)) } + [.published(origin(.push), plain)]
    }

    static var answers: [Answered] {
        let rare: [Answered] = [
            (LeaseCommand.self, LeaseAnswer?.none),
            (LeaseCommand.self, Optional(LeaseAnswer(jobs: [job], due: [.init(.apns)]))),
            (SettleJobs.self, [ResultVerdict(job: message, verdict: .stale)]),
            (TakeReceipts.self, [ResultVerdict(job: message, verdict: .unknownJob)]),
            (ExtendLeases.self, [ResultVerdict(job: message, verdict: .storeFailed)]),
            (DeviceStatusRequest.self, DeviceAnswer.unknown), (DeviceStatusRequest.self, DeviceAnswer.unreadable),
            (DeviceStatusRequest.self, DeviceAnswer.known(status)),
            (MessageTraceRequest.self, TraceAnswer.known(trace)), (MessageTraceRequest.self, TraceAnswer.unknown),
            (TaskMessageRequest.self, TraceAnswer.unreadable),
            (TaskMessageRequest.self, TraceAnswer.unknownTask),
            (ReceiptCommand.self, ReceiptAnswer.taken(EventVerdict.allCases)),
            (ReceiptCommand.self, ReceiptAnswer.refused),
            (ReceiptCommand.self, ReceiptAnswer.clockSkew(serverTime: time)),
            (ReceiptCommand.self, ReceiptAnswer.busy),
        ]
        return rare + replies.map { (DirectoryCommand.self, $0) } + shardAnswers + gatewayAnswers
    }

    static var job: Job {
        Job(
            channel: .apns, message: message, leaseID: (1, .max), leasedUntil: time, task: task, app: app, cid: cid,
            token: "abcd", tokenKind: .alert, environment: .sandbox, topic: "com.example", pushType: .alert,
            priority: 10, expiration: 0, collapseID: "c", body: Array("{}".utf8), attempt: 2, acceptedAt: time,
            dueAt: time + 1)
    }

    static var attributes: DeviceAttributes {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.notificationPermission) = (.miniProgram, .denied)
        (attributes.brand, attributes.model, attributes.locale) = ("HUAWEI", "Mate 60", "zh-CN")
        return attributes
    }

    static var status: DeviceStatus {
        var status = DeviceStatus(
            app: app, isConnected: true, isReachable: false, isSuspect: true, applicationState: .background,
            keepsRunning: true, generation: .max, heartbeatSeconds: 30, lastSeenAt: time, lastLoginAt: time,
            registeredAt: time, queuedMessageCount: 3, queuedByteCount: 4, inFlightCount: 5, nextSequence: 6, badge: -7,
            pushModeOff: false,
            tokens: [
                .init(
                    channel: .apns, kind: .liveActivity, environment: .production, topic: "t", token: "k",
                    activity: "match", isQuarantined: true)
            ],
            vendorFailure: VendorFailure(
                message: message, at: time, outcome: .rejected, attempts: 3, reason: "Unregistered"),
            bounds: .init(messageCount: 7, byteCount: 8), names: .init(aliases: ["a"], tags: ["t", "运动"]))
        status.attributes = attributes
        return status
    }

    static var trace: MessageTrace {
        var trace = MessageTrace(
            message: message, task: task, cid: cid, app: app, strategy: .liveOnly, isOffline: true, sequence: 8,
            acceptedAt: time, expiresAt: time + 1, finalState: .handedOff, finalReason: "why",
            steps: TraceEvent.allCases.map { .init(event: $0, time: time, detail: "\($0)") })
        (trace.fallback, trace.fallbackReason, trace.channel, trace.attempts) = (.due, .pushModeOff, .apns, 9)
        return trace
    }

    enum ReplyCase: CaseIterable {
        case done, reserved, full, members, aliasSet, late, overtaken, aliasCleared, held, notHeld, tooMany, tooOften,
            device, count, unknown, failed, tokenTaken, tokenHeld

        init(_ reply: DirectoryReply) {
            switch reply {
            case .done: self = .done
            case .reserved: self = .reserved
            case .full: self = .full
            case .members: self = .members
            case .aliasSet: self = .aliasSet
            case .late: self = .late
            case .overtaken: self = .overtaken
            case .aliasCleared: self = .aliasCleared
            case .held: self = .held
            case .notHeld: self = .notHeld
            case .tooMany: self = .tooMany
            case .tooOften: self = .tooOften
            case .tokenTaken: self = .tokenTaken
            case .tokenHeld: self = .tokenHeld
            case .device: self = .device
            case .count: self = .count
            case .unknown: self = .unknown
            case .failed: self = .failed
            }
        }
    }

    static var replies: [DirectoryReply] {
        let entries = [AliasEntry(cid: cid, bucket: bucket, stamp: time)]
        return [
            .done, .reserved(stamp: time), .full(entries), .members([]), .aliasSet(previous: alias, stamp: 1),
            .aliasSet(previous: nil, stamp: 2), .late, .overtaken, .aliasCleared(stamp: time), .held,
            .notHeld(isStale: true), .tooMany, .tooOften, .tokenTaken, .tokenHeld(entries[0]),
            .device(
                DeviceDetail(
                    aliases: [alias], tags: [tag("x")], badge: -1, isBlacklisted: true, isConnected: true,
                    isReachable: true, pushModeOff: true, registeredAt: time, lastSeenAt: time, sessionCount: .max,
                    token: "t", topic: "o", attributes: attributes)),
            .count(4_096), .unknown, .failed,
        ]
    }

    static var refusal: RefusedPublish {
        RefusedPublish(
            time: time, reason: .queueFull, app: app, cid: cid, task: task, request: CallKey(high: 1, low: 2))
    }

    static var overview: JobOverview {
        JobOverview(
            queues: [.init(app: app, channel: .apns, dueCount: 3, heldCount: 4)],
            jobs: [
                .init(
                    message: message, app: app, cid: cid, channel: .apns, acceptedAt: time, dueAt: time,
                    expiresAt: time, attempts: 5, reason: "r")
            ])
    }

    static var totals: TaskTotals {
        var totals = TaskTotals()
        (totals.accepted, totals.failures, totals.actions) = (5, ["BadToken": 2], [3: 4])
        totals[.delivered] = 3
        (totals.live.sent, totals.vendor.shown, totals.all.clicked) = (1, 2, 3)
        return totals
    }

    /// An answer of each case to each question to a shard.
    static var shardAnswers: [Answered] {
        func each<Request: PartitionRequest>(_ type: Request.Type, _ answers: [Request.Answer]) -> [Answered] {
            answers.map { (type, $0) }
        }
        var day = DayTotals()
        (day.messages, day.registered, day.active, day.accumulated) = (totals, 6, 7, 8)
        var counters = CountersRow(app: app, day: 20_000)
        (counters.accepted, counters.extra[.sent]) = (9, 10)
        let transitions: [TaskTransition] = [
            .changed(record), .changed(broadcast), .refused(.stopped), .unknown, .busy,
        ]
        let tasks =
            each(CreateTask.self, [.created(task, isRepeat: true), .conflict, .full, .tooLarge, .busy])
            + each(LoadTask.self, [.found(record), .found(broadcast), .absent, .unreadable])
            + each(ChangeTask.self, transitions) + each(AdvanceBroadcast.self, transitions)
            + each(ParkTargets.self, [.parked, .refused(.open), .unknown, .tooLarge, .busy])
            + each(ReadTargets.self, [.init(devices: [cid], next: 5), .init(devices: [], next: nil), nil])
            + each(SweepTask.self, [6, nil]) + each(StopSingle.self, [.found(1), .absent, .unreadable])
            + each(KeepSiblings.self, [true, false]) + each(EndSibling.self, [1, nil])
            + each(SettleFirstAck.self, [true, false])
            + each(
                BeginCall.self,
                [.begun(task, [cid]), .ended(task, [outcome(.queueFull)]), .conflict, .tooLarge, .busy])
            + each(EndCall.self, [true, false]) + each(JoinGroup.self, [true, false])
            + each(ReadGroup.self, [[task], nil])
        let broadcasts =
            each(ScanBroadcast.self, [.init(count: 7, devices: [cid]), nil])
            + each(
                LiveBroadcasts.self,
                [
                    .init(logs: [AppBroadcasts(app: app, head: 9, records: [broadcast])]),
                    .init(logs: [broadcastPiece], next: BroadcastPlace(app: app, number: 10)), nil,
                ])
            + each(BroadcastHeads.self, [[AppBroadcasts(app: app, head: 9, records: [])], nil])
        let reports =
            each(TaskTotalsQuery.self, [.found(totals), .absent, .unreadable]) + each(DayQuery.self, [day, nil])
            + each(FoldableQuery.self, [[counters], nil]) + each(RemoveCounters.self, [true, false])
            + each(OnlineQuery.self, [[app: 11], nil])
        let inspections =
            each(
                RecentQuery.self, [.found(RecentMessages(traces: [trace], refusals: [refusal], isCut: true)), .absent])
            + each(RequestQuery.self, [.init(outcomes: [outcome(.accepted)], refusals: [refusal]), nil])
            + each(CallQuery.self, [.found(task), .absent]) + each(SingleQuery.self, [.found(cid), .absent])
            + each(DeviceListQuery.self, [[address], nil]) + each(JobsQuery.self, [overview, nil])
            + each(LeasedJobsQuery.self, [[LeasedJob(message, LeaseKey((1, 2)))], [], nil])
            + each(ChangeDevice.self, [.found(DeviceChangeResult(count: 1, leftCount: 2)), .absent])
        let feeds = each(
            FeedCommand.self,
            [
                .taken, .refused(.deviceFull), .page(feedPage), .acknowledged(feedState), .state(feedState), .beyond(9),
                .otherHistory, nil,
            ])
        return tasks + broadcasts + reports + inspections + feeds
    }
}
