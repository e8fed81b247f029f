internal import APNs
internal import Quotas
internal import Cryptography
internal import Delivery
internal import Directory
internal import JSON
internal import PushAPI
internal import Wire

/// A request to the push listener and a trusted sender's Publish frame: any bytes get exactly one answer, and accepted requests
/// keep every limit.
///
/// Input: method, kind of token, path, a byte for the outcomes, then the body.
enum PushFuzz {
    static let now: GatewayTime = 1_700_000_000_000
    static let app = App(
        appID: "demoApp", appKey: "demoKey", appSecrets: ["demoAppSecret"], masterSecrets: ["demoSecret"],
        apnsTopic: "com.example.demo")
    static let cid = "0123456789abcdef0123456789abcdef"

    static func run(_ input: [UInt8]) throws {
        var script = Script(input)
        let random = countingRandom()
        let api = PublicAPI(
            registry: AppRegistry([app]), tokens: TokenAuthority(key: [UInt8](repeating: 7, count: 32)),
            random: random)
        let method = script.pick([APIRequest.Method.post, .get, .head, .put, .delete, .other])
        let valid = Array(
            api.tokens.issue(for: app.key, expiresAt: now + Limits.tokenLifetime, random: 99).utf8)
        let token: [UInt8]? =
            switch script.choice(8) {
            case 0: nil
            case 1: script.bytes(upTo: 255)
            default: valid
            }
        let path = script.choice(8)
        let target: [UInt8] =
            switch path {
            case 0: script.bytes(upTo: 255)
            case 1: Array("/v2/demoApp/push/single/batch/cid".utf8)
            case 2: Array("/v2/demoApp/auth".utf8)
            case 3: Array("/v2/demoApp/auth/".utf8) + valid
            case 4: Array("/v2/demoApp/user/status/\(cid),".utf8) + script.bytes(upTo: 255)
            case 5: []
            case 6: campaignPath(&script)
            default: Array("/v2/demoApp/push/single/cid".utf8)
            }
        let outcomes = script.byte()
        let body = script.rest()
        if path == 5 { return try native(body, random) }

        let proof = [UInt8](repeating: UInt8(ascii: "a"), count: 64)

        try checkPath(target)
        let action = target.withUnsafeBytes { target in
            body.withUnsafeBytes { body in
                proof.withUnsafeBytes { proof in
                    guard let token else {
                        return api.handle(
                            APIRequest(method: method, target: target, proof: proof, body: body), now: now)
                    }
                    return token.withUnsafeBytes {
                        api.handle(APIRequest(method: method, target: target, token: $0, body: body), now: now)
                    }
                }
            }
        }
        switch action {
        case .respond(let response), .revokeToken(_, _, let response), .token(let response),
            .unlistedApp(let response):
            try JSONFuzz.check(response)
        case .check: break
        case .push(let pushes, let form):
            try require(token == valid, "a push without the app's token")
            try require(!pushes.isEmpty && pushes.count <= Limits.batchItemCount, "\(pushes.count) messages")
            for push in pushes { try push.withCommand(origin: .none) { try check($0) } }
            try JSONFuzz.check(
                PushAnswer.render(
                    outcomes: pushes.enumerated().map { outcome(of: $1, index: $0, choice: outcomes) }, form: form,
                    durability: .fsync))
        case .userStatus(let query):
            try require(token == valid, "a status without the app's token")
            try require(query.devices.count <= api.userLimits.statusDevices, "too many devices")
            try JSONFuzz.check(StatusAnswer.render(query, statuses: [:]))
        case .users(let request):
            try require(token == valid, "a call about users without the app's token")
            try JSONFuzz.check(UserAnswer.render(request, try finished(request.work, choice: outcomes)))
            for verdict in [RateLimiter.Verdict.minuteExceeded, .dayExceeded] {
                try JSONFuzz.check(UserAnswer.refused(request, verdict))
            }
        case .testDevices(let request):
            try require(token == valid, "a call about test devices without the app's token")
            var book = TestDeviceList()
            book.put(TestDevice(cid: .none, remark: "\"mine", createdAt: now, updatedAt: now), app: app.key)
            let known = Set(outcomes & 1 == 1 ? request.lookUp.map(\.cid) : [])
            let result = book.perform(request, known: known, limit: Int(outcomes), now: now).result
            try JSONFuzz.check(TestDeviceAnswer.render(request, result, page: Array(repeating: .unknown, count: 1)))
        case .campaign(let action):
            try require(token == valid, "a task without the app's token")
            try check(action)
        case .receipt(let request):
            let command = request.command(origin: .none)
            try require((1...Limits.receiptEventCount).contains(command.events.count), "\(command.events.count) events")
            try require(command.transcript.count > body.count && command.proof.count == 32, "a proof of something else")
            for answer in [ReceiptAnswer.taken(EventVerdict.allCases), .refused, .clockSkew(serverTime: now), .busy] {
                try JSONFuzz.check(ReceiptRequest.answer(answer))
            }
        case .healthz, .readyz: break
        }
    }

    /// Runs an operation to its end, whatever the answers.
    private static func finished(_ work: DirectoryOperation.Work, choice: UInt8) throws -> DirectoryOperation {
        let entry = AliasEntry(cid: DeviceID(hex: cid.utf8) ?? .none, bucket: Bucket(7), stamp: now)
        let alias = AliasName(app: app.key, text: "alice")
        let detail = DeviceDetail(
            aliases: [alias], tags: [TagName(app: app.key, text: "vip")], isBlacklisted: choice & 1 == 1,
            registeredAt: now,
            token: "ab\"12", topic: "com.example.demo")
        let replies: [DirectoryReply] = [
            .done, .reserved(stamp: now), .full([entry]), .members([entry, entry]), .members([]),
            .aliasSet(previous: alias, stamp: now), .aliasSet(previous: nil, stamp: 0), .late, .overtaken,
            .aliasCleared(stamp: now),
            .held, .notHeld(isStale: true), .notHeld(isStale: false), .tooMany, .tooOften, .device(detail), .count(3),
            .unknown, .failed,
        ]
        var operation = DirectoryOperation(work, loopCount: 2)
        var steps = operation.start()
        var count = 0
        while let step = steps.popLast() {
            count += 1
            try require(count < 100_000, "an operation without an end")
            steps += operation.receive(step.request, replies[(Int(choice) + count) % replies.count])
        }
        try require(operation.isDone, "an operation that waits for nothing is not done")
        return operation
    }

    private static func campaignPath(_ script: inout Script) -> [UInt8] {
        let paths = [
            "push/list/message", "push/list/cid", "push/list/alias", "push/single/alias", "push/single/batch/alias",
            "report/push/task/", "report/push/date/", "task/schedule/", "push/all", "push/tag", "push/fast_custom_tag",
            "push/single/cid_by_tag", "push/list/cid_by_tag", "receipt",
        ]
        let path = paths[script.choice(paths.count)]
        return Array("/v2/demoApp/\(path)".utf8) + (path.hasSuffix("/") ? script.bytes(upTo: 255) : [])
    }

    /// Checks the properties that the coordinator and the shards rely on.
    private static func check(_ action: CampaignAction) throws {
        let cid = DeviceID(high: 1, low: 2)
        func check(_ content: MessageContent, _ task: TaskID) throws {
            var target = MessageContent.Target(
                origin: .none, app: app.key, bucket: app.bucket(of: cid), cid: cid, task: task, messageDigest: 7)
            target.isBulk = true
            try content.withCommand(for: target) { try self.check($0) }
            let again = TaskID(kind: .list, month: 1, day: 2, random: (3, 4))
            let renamed = content.renamed(from: task, to: again)
            try require(renamed.lengths == content.lengths, "another name changes a length")
            try renamed.withCommand(for: target) { try self.check($0) }
        }
        func check(_ candidates: [TagCandidate]) throws {
            try require((1...Limits.listTargetCount).contains(candidates.count), "\(candidates.count) devices")
            try require(Set(candidates.map(\.target.cid)).count == candidates.count, "a device twice")
        }
        switch action {
        case .create(let task):
            if task.record.broadcast != nil {
                try require(task.record.id.home == app.key.home, "a broadcast away from its app's log")
            }
            try check(task.record.content, task.record.id)
            try require(
                task.requestKey == .none || Bucket(digest: task.requestKey.high) == task.record.id.home,
                "a task away from its request")
            try JSONFuzz.check(
                CampaignAnswer.created(.created(task.record.id, isRepeat: true), task, durability: .os))
            try JSONFuzz.check(CampaignAnswer.schedule(.found(task.record)))
        case .list(let call):
            switch call.audience {
            case .devices(let targets):
                try require((1...Limits.listTargetCount).contains(targets.count), "\(targets.count) devices")
                try require(Set(targets.map(\.cid)).count == targets.count, "a device twice")
            case .aliases(let aliases):
                try require((1...Limits.listTargetCount).contains(aliases.count), "\(aliases.count) aliases")
                try require(Set(aliases).count == aliases.count, "an alias twice")
            case .conditions(let candidates): try check(candidates)
            }
        case .byTag(let push):
            try check(push.content, push.task)
            try check(push.candidates)
            try JSONFuzz.check(CampaignAnswer.byTag(push.task, [], durability: .os))
        case .aliases(let pushes, let form):
            try require(!pushes.isEmpty && pushes.count <= Limits.batchItemCount, "\(pushes.count) pushes")
            for push in pushes { try check(push.content, push.task) }
            try JSONFuzz.check(
                CampaignAnswer.aliases(
                    pushes.map { ($0.itemIndex, CampaignAnswer.unknownAlias($0.alias.text)) }, form: form,
                    durability: .fsync))
        case .taskReport(let query):
            try require(query.tasks.count <= Limits.reportedTaskCount, "\(query.tasks.count) tasks")
            try JSONFuzz.check(ReportAnswer.tasks(query.tasks.map { ($0, TaskTotals()) }, query))
        case .groupReport(let query): try JSONFuzz.check(ReportAnswer.group(TaskTotals(), tasks: 0, query))
        case .dayReport(let query): try JSONFuzz.check(ReportAnswer.day(DayTotals(), online: 0, query))
        case .stop, .schedule, .cancel, .detail, .onlineReport, .quotaReport: break
        }
    }

    static func countingRandom() -> RandomWords {
        var counter: UInt64 = 0
        return RandomWords {
            counter += 1
            return counter &* 0x9E37_79B9_7F4A_7C15
        }
    }

    private static func checkPath(_ target: [UInt8]) throws {
        try target.withUnsafeBytes { bytes in
            let path = RequestPath(bytes)
            try require(path.count <= Limits.pathSegmentCount, "too many segments")
            for index in 0..<path.count { try require(!path[index].isEmpty, "an empty segment \(path.text(index))") }
        }
    }

    /// Checks the properties that a shard relies on.
    private static func check(_ command: PublishCommand) throws {
        try require(command.app == app.key && command.bucket == app.bucket(of: command.cid), "another device's bucket")
        try require(!command.cid.isNone, "no device")
        try require((1...Limits.payloadByteCount).contains(command.payload.count), "a payload beyond its limits")
        try require(command.collapseKey.count <= Limits.collapseKeyByteCount, "a collapse key beyond its limit")
        try require((-1...Limits.timeToLive).contains(command.timeToLive), "a TTL of \(command.timeToLive)")
        for text in [command.collapseKey, command.alertTitle, command.alertBody] {
            try require(String(validating: text, as: UTF8.self) != nil, "a text is not UTF-8")
        }
        guard let vendor = command.vendor else { return }
        try require(vendor.priority == 5 || vendor.priority == 10, "priority \(vendor.priority)")
        try require(vendor.collapseID.count <= Limits.apnsCollapseIDByteCount, "a collapse id beyond its limit")
        try require(vendor.body.count <= Limits.apnsVoIPBodyByteCount, "a body beyond what the vendor takes")
        let message = MessageID(bucket: command.bucket, acceptedAt: now, digest: command.messageDigest)
        for badge in [0, 7, Int32.max] {
            let body = Shard.rendered(vendor, message: message, badge: badge)
            try require(JSONFuzz.isJSON(body), "no JSON for the vendor: \(String(decoding: body, as: UTF8.self))")
        }
        try checkAppleTakes(Shard.rendered(vendor, message: message, badge: 7), vendor)
    }

    /// Checks that the sender's content rules accept every accepted request.
    private static func checkAppleTakes(_ body: [UInt8], _ vendor: VendorContent) throws {
        let (type, kind) = (
            APNs.PushType(rawValue: "\(vendor.pushType.name)"), APNs.TokenKind(rawValue: "\(vendor.tokenKind.name)")
        )
        try require(type != nil && kind != nil, "no push type of Apple's")
        guard let type, let kind else { return }
        let parser = JSONParser(depthLimit: JSONParser.standardDepth + HandoffBounds.jobDepth)
        let facts = try body.withUnsafeBytes { bytes in
            BodyFacts(try parser.parse(bytes), isActivity: type == .liveactivity)
        }
        let breach =
            RequestRules.breach(of: facts, type, kind) ?? RequestRules.breach(ofCollapseID: Array(vendor.collapseID))
        try require(breach == nil, "accepted, and refused by the sender: \(breach.map { "\($0.reason)" } ?? "")")
    }

    private static func outcome(of push: ParsedPush, index: Int, choice: UInt8) -> PublishOutcome {
        let codes: [PublishOutcome.Code] = [
            .accepted, .unknownDevice, .queueFull, .noToken, .requestConflict, .requestPending, .busy, .storeFailed,
            .ignored, .stopped,
        ]
        return PublishOutcome(
            code: codes[(Int(choice) + index) % codes.count], cid: push.address.cid,
            message: MessageID(high: 1, low: 2),
            task: push.task, isLive: choice & 1 == 1, fallback: .armed, timeToLive: push.timeToLive)
    }

    // MARK: Publish frames

    private static func native(_ body: [UInt8], _ random: RandomWords) throws {
        let view: PublishView
        do throws(WireError) { view = try PublishView(decoding: body.span.bytes) } catch { return }
        let publisher = NativePublisher(random: random)
        try body.withUnsafeBytes { bytes in
            let publish = NativePublish(
                cid: view.cid, payload: view.payload.bytes(of: bytes), timeToLive: view.timeToLive,
                hasTimeToLive: view.hasTimeToLive, strategy: view.strategy,
                collapseKey: view.collapseKey.bytes(of: bytes), requestID: view.requestID.bytes(of: bytes),
                alertTitle: view.alertTitle.bytes(of: bytes), alertBody: view.alertBody.bytes(of: bytes),
                apns: view.apns.bytes(of: bytes))
            let checked: Result<Void, any Error>
            do throws(NativePublishFault) {
                checked = try publisher.withCommand(publish, sender: NativeSender(app), origin: .none, now: now) {
                    command, _ in
                    Result { try check(command) }
                }
            } catch {
                let isKnown = error.code == .invalidParameter || error.code == .sizeOverLimit
                return try require(isKnown && !error.reason.isEmpty, "refused with \(error.code)")
            }
            try checked.get()
        }
    }
}
