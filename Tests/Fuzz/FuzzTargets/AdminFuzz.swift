internal import APNs
internal import Delivery
internal import PushAPI
internal import Wire

/// Requests to the admin listener, answers of a hook, and renderings of untrusted text.
///
/// Input: a byte for the part, then its script.
enum AdminFuzz {
    static let token = "0123456789abcdef"
    static let job = MessageID("0123456789abcdef0123456789abcdef")!

    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        switch script.choice(4) {
        case 0, 1: try request(&script)
        case 2: try hook(&script)
        default: try rendering(&script)
        }
    }

    private static func request(_ script: inout Script) throws {
        let api = AdminAPI(
            registry: AppRegistry([PushFuzz.app]),
            credentials: CredentialSet([
                Credential(name: "all", token: token, may: [.admin]),
                Credential(name: "some", token: "fedcba9876543210", apps: [PushFuzz.app.key], may: [.handoff]),
            ]), random: PushFuzz.countingRandom())
        let method = script.pick([APIRequest.Method.post, .get, .head, .put, .delete, .other])
        let bearer: [UInt8]? =
            switch script.choice(8) {
            case 0: nil
            case 1: script.bytes(upTo: 255)
            case 2: Array("bearer fedcba9876543210".utf8)
            default: Array("Bearer \(token)".utf8)
            }
        let target: [UInt8] =
            switch script.choice(8) {
            case 0: script.bytes(upTo: 255)
            case 1: Array("/v1/messages/".utf8) + script.bytes(upTo: 64)
            case 2: Array("/v1/apps/demoApp/devices/".utf8) + script.bytes(upTo: 64)
            case 3 where script.flag():
                Array("/v1/apps/demoApp/".utf8)
                    + Array(script.pick(["aliases/", "requests/", "tasks/", "devices?limit=", "devices?after="]).utf8)
                    + script.bytes(upTo: 64)
            case 3: Array((script.flag() ? "/v1/handoff/lease" : "/v1/apps/demoApp/push").utf8)
            case 4: Array("/v1/handoff/extend".utf8)
            default: Array("/v1/handoff/results".utf8)
            }
        let body = script.rest()
        let action = target.withUnsafeBytes { target in
            body.withUnsafeBytes { body in
                guard let bearer else {
                    return api.handle(
                        APIRequest(method: method, target: target, body: body, peerIsLoopback: true), now: PushFuzz.now)
                }
                return bearer.withUnsafeBytes {
                    api.handle(
                        APIRequest(
                            method: method, target: target, authorization: $0, body: body, peerIsLoopback: true),
                        now: PushFuzz.now)
                }
            }
        }
        switch action {
        case .respond(let response): try JSONFuzz.check(response)
        case .lease(let lease):
            try require((1...HandoffBounds.jobCount).contains(lease.limit), "a lease of \(lease.limit) jobs")
            try require((5_000...300_000).contains(lease.leaseMilliseconds), "a lease beyond its limits")
            try require((0...30_000).contains(lease.waitMilliseconds), "a wait beyond its limits")
            try require(bearer != nil, "a lease without a credential")
        case .results(let request):
            let results = request.results
            try require(results.count <= HandoffBounds.jobCount && bearer != nil, "\(results.count) results")
            for result in results { try check(result) }
        case .receipts(let receipts, _):
            try require(receipts.count <= HandoffBounds.jobCount && bearer != nil, "\(receipts.count) receipts")
            for receipt in receipts {
                try require(
                    receipt.message.bucket != nil && receipt.token.utf8.count <= Wire.Limits.tokenByteCount
                        && receipt.at >= 0, "a receipt beyond its limits")
            }
        case .extend(let extend):
            try require(extend.items.count <= HandoffBounds.jobCount && bearer != nil, "\(extend.items.count) items")
            try require((5_000...300_000).contains(extend.leaseMilliseconds), "a lease beyond its limits")
            for item in extend.items { try require(item.job.bucket != nil, "a job of no bucket") }
        case .device(let address):
            try require(address.bucket == PushFuzz.app.bucket(of: address.cid), "another device's bucket")
            try JSONFuzz.check(AdminAnswer.device(nil, at: address, registry: api.registry))
        case .message(let message, let scope):
            try require(message.bucket != nil, "a message of no bucket")
            try JSONFuzz.check(AdminAnswer.trace(nil, scope: scope, registry: api.registry))
        case .push: try require(bearer != nil, "a push without a credential")
        case .inspect(let request):
            try require(bearer != nil, "a question without a credential")
            switch request {
            case .recent(let address, let limit):
                try require(address.bucket == PushFuzz.app.bucket(of: address.cid), "another device's bucket")
                try require(1...InspectionBounds.answerLimit ~= limit, "\(limit) messages")
            case .devices(_, _, let limit), .jobs(_, let limit):
                try require(1...InspectionBounds.answerLimit ~= limit, "\(limit) devices or jobs")
            case .request(let name):
                try require(name.text.utf8.count <= Limits.requestIDByteCount, "a long request id")
                try JSONFuzz.check(InspectionAnswers.request(name, singles: [], tasks: [], refusals: []))
            case .alias(let name, _): try JSONFuzz.check(InspectionAnswers.alias(name, [DeviceID(high: 1, low: 2)]))
            case .task, .taskMessage, .change: break
            }
        case .app(.show): try require(bearer != nil, "an app without a credential")
        case .app(.change(let change, _)):
            try require(bearer != nil, "a change without a credential")
            try require(change.isSound, "a change of \(change.body.count) bytes")
        case .metrics, .metricHistory: try require(bearer != nil, "metrics without a credential")
        case .backup(let name, _):
            try require(bearer != nil, "a backup without a credential")
            try require(!name.hasPrefix(".") && !name.contains("/") && 1...64 ~= name.utf8.count, "a path: \(name)")
        case .feed(let request):
            try require(bearer != nil, "a feed without a credential")
            if case .read(let read) = request {
                try require(1...FeedBounds.pageItems ~= read.limit, "a page of \(read.limit)")
                try require(0...FeedBounds.waitMilliseconds ~= read.waitMilliseconds, "a wait beyond its limits")
            }
        case .health: try require(bearer != nil, "findings without a credential")
        case .cluster, .registerRequest, .backupState, .drain, .drainState, .signIn, .healthz, .readyz: break
        }
    }

    private static func check(_ result: JobResult) throws {
        try require(result.job.bucket != nil, "a job of no bucket")
        try require((0...86_400_000).contains(result.retryAfterMilliseconds), "a pause beyond its limits")
    }

    // MARK: Hook

    private static func hook(_ script: inout Script) throws {
        let jobs = [sample(job, "t"), sample(MessageID(high: 2, low: 3), "u")]
        let delivery = HookDelivery(jobs: jobs, channel: .apns, leaseID: (4, 5), registry: AppRegistry([PushFuzz.app]))
        let status = script.choice(8) == 0 ? Int(script.byte()) * 4 : script.pick([200, 204, 202, 500])
        let body = script.rest()
        switch body.withUnsafeBytes({ HookAnswer(status: status, body: $0, delivery: delivery) }) {
        case .settled(let results):
            try require((200...299).contains(status) && status != 202, "settled by status \(status)")
            try require(results.map(\.job) == jobs.map(\.message), "results and jobs differ")
            for (result, job) in zip(results, jobs) {
                try require(result.leaseID == job.leaseID, "another lease")
                try check(result)
            }
        case .deferred: try require(status == 202, "deferred by status \(status)")
        case .retry(let reason): try require(!reason.isEmpty && status != 202, "a retry without a reason")
        }
    }

    private static func sample(_ message: MessageID, _ text: String) -> Job {
        Job(
            channel: .apns, message: message, leaseID: (4, 5), leasedUntil: PushFuzz.now,
            task: TaskID(high: 1 << 56, low: 6),
            app: PushFuzz.app.key, cid: DeviceID(high: 7, low: 8), token: text, tokenKind: .alert,
            environment: .production, topic: text, pushType: .alert, priority: 10, expiration: PushFuzz.now,
            collapseID: text, body: Array(#"{"aps":{"alert":"x"}}"#.utf8), attempt: 1, acceptedAt: PushFuzz.now,
            dueAt: PushFuzz.now)
    }

    // MARK: Rendering

    private static func rendering(_ script: inout Script) throws {
        let registry = AppRegistry([PushFuzz.app])
        let text = script.text(upTo: 255), other = script.text(upTo: 255)
        var one = sample(job, text)
        (one.collapseID, one.expiration, one.acceptedAt) = (other, time(&script), time(&script))
        (one.leasedUntil, one.priority, one.attempt) = (time(&script), script.byte(), Int(time(&script)))
        try JSONFuzz.check(HandoffAnswer.lease([one, one], registry: registry))
        try JSONFuzz.check(HandoffAnswer.verdicts([ResultVerdict(job: job, verdict: .recorded)]))
        let delivery = HookDelivery(jobs: [one], channel: .apns, leaseID: (script.word(), 1), registry: registry)
        try require(JSONFuzz.isJSON(delivery.body), "a hook's request is no JSON")

        let states: [FinalState?] = [nil] + FinalState.allCases
        let steps = (0..<script.choice(6)).map { _ in
            MessageTrace.Step(event: script.pick(TraceEvent.allCases), time: time(&script), detail: text)
        }
        try JSONFuzz.check(
            AdminAnswer.trace(
                MessageTrace(
                    message: job, task: TaskID(high: script.word(), low: 1), cid: DeviceID(high: 1, low: 2),
                    app: PushFuzz.app.key, strategy: .liveElseVendor, isOffline: script.flag(), sequence: script.word(),
                    acceptedAt: time(&script), expiresAt: time(&script), finalState: script.pick(states),
                    finalReason: other, steps: steps), scope: nil, registry: registry))
        let address = DeviceAddress(
            app: PushFuzz.app.key, bucket: PushFuzz.app.bucket(of: DeviceID(high: 1, low: 2)),
            cid: DeviceID(high: 1, low: 2))
        try JSONFuzz.check(
            AdminAnswer.device(
                DeviceStatus(
                    app: PushFuzz.app.key, isConnected: script.flag(), isReachable: true, isSuspect: false,
                    applicationState: .background, keepsRunning: true, generation: script.word(),
                    heartbeatSeconds: time(&script), lastSeenAt: time(&script), lastLoginAt: 0,
                    registeredAt: 0, queuedMessageCount: 1,
                    queuedByteCount: 2, inFlightCount: 3, nextSequence: script.word(), badge: -1, pushModeOff: false,
                    tokens: [
                        DeviceStatus.Token(
                            channel: .apns, kind: .voip, environment: .sandbox, topic: text, token: other,
                            activity: text,
                            isQuarantined: true)
                    ], bounds: .init(messageCount: 3, byteCount: 4), names: .init(aliases: [text], tags: [other])),
                at: address, registry: registry))
    }

    private static func time(_ script: inout Script) -> Int64 { Int64(bitPattern: script.number()) }
}
