import APNs
import Delivery
import JSON
import Testing
import Wire

@testable import PushSender
@testable import FakeAPNs
import PushAPI

/// A gateway's acceptance, the resulting job, and the checks of the sender and the fake Apple on that job.
private struct Acceptance {
    private let app: App
    private let api: PublicAPI
    private let publisher = NativePublisher()
    private static let cid = DeviceID("0123456789abcdef0123456789abcdef")!
    private static let now: GatewayTime = 1_700_000_000_000

    init(template: APNsTemplate = APNsTemplate()) {
        var app = App(
            appID: "shop", appKey: "key", appSecrets: ["app"], masterSecrets: ["master"], apnsTopic: "com.example.shop")
        app.apnsTemplate = template
        self.app = app
        api = PublicAPI(
            registry: AppRegistry([app]), tokens: TokenAuthority(key: [UInt8](repeating: 7, count: 32)),
            random: RandomWords { 7 })
    }

    func push(_ ios: String) -> Result<Job, Refusal> {
        let body = Array(
            (#"{"request_id":"req-000001","audience":{"cid":["\#(Self.cid)"]},"push_message":{"transmission":"hello"},"#
                + #""push_channel":{"ios":\#(ios)}}"#).utf8)
        let token = Array(api.tokens.issue(for: app.key, expiresAt: Self.now + 1_000_000, random: 9).utf8)
        let action = Array("/v2/shop/push/single/cid".utf8).withUnsafeBytes { target in
            body.withUnsafeBytes { body in
                token.withUnsafeBytes {
                    api.handle(APIRequest(method: .post, target: target, token: $0, body: body), now: Self.now)
                }
            }
        }
        switch action {
        case .push(let pushes, _): return pushes[0].withCommand(origin: .none) { Self.job($0) }
        case .respond(let response): return .failure(Refusal(text: String(decoding: response.body, as: UTF8.self)))
        default: return .failure(Refusal(text: "no push"))
        }
    }

    func publish(_ apns: String, title: [UInt8] = []) -> Result<Job, Refusal> {
        let none = UnsafeRawBufferPointer(start: nil, count: 0)
        return Array(apns.utf8).withUnsafeBytes { apns in
            title.withUnsafeBytes { title in
                [UInt8]("hello".utf8).withUnsafeBytes { payload in
                    let frame = NativePublish(
                        cid: Self.cid, payload: payload, timeToLive: 0, hasTimeToLive: false, strategy: 1,
                        collapseKey: none, requestID: none, alertTitle: title, alertBody: none, apns: apns)
                    do throws(NativePublishFault) {
                        return try publisher.withCommand(
                            frame, sender: NativeSender(app), origin: .none, now: Self.now
                        ) { command, _ in Self.job(command) }
                    } catch {
                        return .failure(Refusal(text: error.reason))
                    }
                }
            }
        }
    }

    struct Refusal: Error { var text: String }

    private static func job(_ command: PublishCommand) -> Result<Job, Refusal> {
        guard let content = command.vendor else { return .failure(Refusal(text: "nothing for Apple")) }
        let message = MessageID(high: 0x0123_4567_89AB_CDEF, low: 0xFEDC_BA98_7654_3210)
        let collapseID = String(decoding: content.collapseID, as: UTF8.self)
        let job = Job(
            channel: .apns, message: message, leaseID: (1, 2), leasedUntil: now + 60_000, task: command.task,
            app: command.app, cid: command.cid, token: String(repeating: "ab", count: 32),
            tokenKind: content.tokenKind, environment: .production, topic: "com.example.shop",
            pushType: content.pushType, priority: content.priority, expiration: now + 7_200_000,
            collapseID: collapseID.isEmpty ? message.description : collapseID,
            body: Shard.rendered(content, message: message, badge: .max), attempt: 1, acceptedAt: now, dueAt: now)
        return .success(job)
    }

    /// Returns the reason why the sender or the fake refuses a job, or `nil`.
    func objection(to job: Job) -> String? {
        let answer = HandoffAnswer.lease([job], registry: AppRegistry([app]))
        let parser = JSONParser(depthLimit: JSONParser.standardDepth + HandoffBounds.jobDepth)
        guard let reader = try? HandoffJobReader(answer.body, parser: parser),
            let leased = reader.jobs.first as? AppleJob
        else {
            return "unreadable"
        }
        let notification = leased.notification
        if let breach = RequestRules.breach(of: notification, leased.facts) { return "sender: \(breach.reason)" }
        var request = FakeRequest(method: "POST", path: "/3/device/" + notification.token, body: notification.body)
        request.fields["apns-topic"] = notification.fullTopic
        request.fields["apns-push-type"] = notification.pushType.rawValue
        request.fields["apns-priority"] = "\(notification.effectivePriority)"
        request.fields["apns-collapse-id"] = notification.collapseID
        request.fields["apns-id"] = notification.id
        var judge = FakeValidator(environment: .production, keys: [])
        judge.needsProviderToken = false
        return judge.refusal(of: request, now: 1_700_000_000, parser: parser).map { "fake: \($0.1)" }
    }

    /// Returns the `aps` object that Apple receives.
    func aps(_ job: Job) -> String {
        let text = String(decoding: job.body, as: UTF8.self)
        return text.split(separator: #","payload""#)[0].split(separator: #","_gmid_""#)[0].description
    }
}

@Suite("Apple accepts every push that the gateway accepts")
struct AcceptanceTests {
    private static let activity = #""type":"liveactivity","laId":"ride""#
    private static let corrected: [(String, String)] = [
        (#""aps":{"content-available":1,"sound":"com.gexin.ios.silence"}"#, #"{"content-available":1}"#),
        (#""aps":{"content-available":1,"sound":""}"#, #"{"content-available":1}"#),
        (
            #""aps":{"content-available":1,"alert":{"title":"","body":""},"badge":"","sound":{}}"#,
            #"{"content-available":1}"#
        ),
        (#""aps":{"content-available":1,"sound":null,"sound":"x"}"#, #"{"content-available":1}"#),
        (#""aps":{"content-available":"1"}"#, #"{"content-available":1}"#),
        (#""aps":{"content-available":true}"#, #"{"content-available":1}"#),
        (#""aps":{"content-available":1.0}"#, #"{"content-available":1}"#),
        (#""aps":{"alert":"a","mutable-content":"1"}"#, #"{"alert":"a","mutable-content":1}"#),
        (#""aps":{"alert":"a","mutable-content":true}"#, #"{"alert":"a","mutable-content":1}"#),
        (#""aps":{"alert":"a","sound":"com.gexin.ios.silence"}"#, #"{"alert":"a"}"#),
        (#""aps":{"alert":"a","badge":"5"}"#, #"{"alert":"a","badge":5}"#),
        (#""aps":{"alert":"a","badge":5.0}"#, #"{"alert":"a","badge":5}"#),
        (#""aps":{"alert":"a","relevance-score":"0.5"}"#, #"{"alert":"a","relevance-score":0.5}"#),
        (#""aps":{"alert":"a","interruption-level":""}"#, #"{"alert":"a"}"#),
        (
            #""aps":{"alert":{"title":7,"loc-args":[1,"b"]},"category":9}"#,
            #"{"alert":{"title":"7","loc-args":["1","b"]},"category":"9"}"#
        ),
        (
            #""aps":{"sound":{"critical":true,"name":"s.caf","volume":"0.5"}}"#,
            #"{"sound":{"critical":1,"name":"s.caf","volume":0.5}}"#
        ),
        (
            #"\#(activity),"aps":{"event":"update","timestamp":"1700000000","content-state":[]}"#,
            #"{"event":"update","timestamp":1700000000,"content-state":{}}"#
        ),
        (
            #"\#(activity),"aps":{"event":"end","timestamp":1700000000.7,"relevance-score":75}"#,
            #"{"event":"end","timestamp":1700000000,"relevance-score":75}"#
        ),
        (
            #"\#(activity),"aps":{"event":"start","timestamp":1,"content-state":{},"attributes-type":"Ride","attributes":[],"alert":{"title":{"loc-key":"k"}}}"#,
            #"{"event":"start","timestamp":1,"content-state":{},"attributes-type":"Ride","attributes":{},"alert":{"title":{"loc-key":"k"}}}"#
        ),
    ]

    @Test("values with a clear meaning are sent in the form that Apple reads", arguments: corrected)
    func corrections(ios: String, aps: String) throws {
        let acceptance = Acceptance()
        for job in [try acceptance.push("{\(ios)}").get(), try acceptance.publish("{\(ios)}").get()] {
            #expect(acceptance.aps(job) == #"{"aps":\#(aps)"#)
            #expect(acceptance.objection(to: job) == nil)
        }
    }

    private static let refused: [(String, String)] = [
        (#""aps":{"alert":"a","badge":"+1"}"#, "aps.badge is invalid"),
        (#""aps":{"alert":"a","badge":true}"#, "aps.badge is invalid"),
        (#""aps":{"alert":"a","badge":-1}"#, "aps.badge is invalid"),
        (#""aps":{"content-available":2}"#, "aps.content-available is invalid"),
        (#""aps":{"content-available":"yes"}"#, "aps.content-available is invalid"),
        (#""aps":{"content-available":false,"category":"c"}"#, "aps is invalid"),
        (#""aps":{"alert":"a","relevance-score":7}"#, "aps.relevance-score is invalid"),
        (#""aps":{"alert":"a","relevance-score":"inf"}"#, "aps.relevance-score is invalid"),
        (#""aps":{"alert":"a","interruption-level":"loud"}"#, "aps.interruption-level is invalid"),
        (#""aps":{"alert":"a","interruption-level":1}"#, "aps.interruption-level is invalid"),
        (#""aps":{"alert":"a","sound":true}"#, "aps.sound is invalid"),
        (#""aps":{"alert":"a","sound":{"volume":2}}"#, "aps.sound.volume is invalid"),
        (#""aps":{"alert":{"title":{"x":1}}}"#, "aps.alert.title is invalid"),
        (#""aps":{"alert":{"title":"t","loc-args":[null]}}"#, "aps.alert.loc-args is invalid"),
        (#""aps":{"alert":"a","thread-id":["x"]}"#, "aps.thread-id is invalid"),
        (
            #"\#(activity),"aps":{"event":"update","timestamp":1}"#,
            "aps is invalid, start and update carry aps.content-state"
        ),
        (#"\#(activity),"aps":{"event":"update","content-state":{}}"#, "aps is invalid, aps.timestamp"),
        (
            #"\#(activity),"aps":{"event":"update","timestamp":1700000000000,"content-state":{}}"#,
            "aps.timestamp is invalid"
        ),
        (#"\#(activity),"aps":{"event":"update","timestamp":1,"content-state":"{}"}"#, "aps.content-state is invalid"),
        (#"\#(activity),"aps":{"event":"start","timestamp":1,"content-state":{}}"#, "aps is invalid, start carries"),
        (#"\#(activity),"aps":{"event":"stop","timestamp":1,"content-state":{}}"#, "aps.event is invalid"),
        (#""aps":{"alert":"a"},"apns-collapse-id":"订单7""#, "apns-collapse-id is invalid"),
        (#""aps":{"alert":"a"},"apns-collapse-id":"a\r\nb""#, "apns-collapse-id is invalid"),
        (#""aps":{"alert":"a"},"apns-collapse-id":"a\u0000""#, "apns-collapse-id is invalid"),
        (#""aps":{"alert":"a"},"apns-collapse-id":" a""#, "apns-collapse-id is invalid"),
        (
            #""aps":{"alert":"a"},"apns-collapse-id":"\#(String(repeating: "x", count: 65))""#,
            "apns-collapse-id size over"
        ),
    ]

    @Test("a push that Apple would refuse or ignore is refused at the call, with the reason", arguments: refused)
    func refusals(ios: String, reason: String) {
        let acceptance = Acceptance()
        for result in [acceptance.push("{\(ios)}"), acceptance.publish("{\(ios)}")] {
            guard case .failure(let refusal) = result else {
                Issue.record("accepted")
                continue
            }
            #expect(refusal.text.contains(reason))
        }
    }

    @Test("a collapse id also counts beside an alert from the template")
    func collapseIDBesideTemplate() throws {
        let acceptance = Acceptance()
        #expect(try acceptance.publish(#"{"apns-collapse-id":"x"}"#, title: Array("T".utf8)).get().collapseID == "x")
        #expect(throws: Acceptance.Refusal.self) {
            try acceptance.publish(#"{"apns-collapse-id":"é"}"#, title: Array("T".utf8)).get()
        }
    }

    @Test("the nesting allowed in a request keeps a lease's answer readable")
    func depth() throws {
        var template = APNsTemplate()
        template.transmission = .none
        let acceptance = Acceptance(template: template)
        for depth in 1...JSONParser.standardDepth {
            let nested = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
            for result in [
                acceptance.push(#"{"aps":{"alert":"a","x":\#(nested)},"y":\#(nested)}"#),
                acceptance.publish(#"{"aps":{"alert":"a","x":\#(nested)},"y":\#(nested)}"#),
            ] {
                if case .success(let job) = result { #expect(acceptance.objection(to: job) == nil) }
            }
        }
    }

    @Test("the sender and the fake accept every push that the gateway accepts", arguments: 0..<8)
    func random(seed: UInt64) {
        var dice = Dice(state: seed &* 0x9E37_79B9_7F4A_7C15 | 1)
        let acceptance = Acceptance()
        var accepted = 0
        for _ in 0..<1_500 {
            let ios = dice.ios()
            let result = dice.isOne(in: 2) ? acceptance.push(ios) : acceptance.publish(ios, title: dice.title())
            guard case .success(let job) = result else { continue }
            accepted += 1
            if let objection = acceptance.objection(to: job) {
                Issue.record("\(objection): \(ios) became \(String(decoding: job.body, as: UTF8.self))")
                return
            }
        }
        #expect(accepted > 100)
    }
}

/// A generator of `push_channel.ios` objects with valid and invalid values.
private struct Dice {
    var state: UInt64

    mutating func word() -> UInt64 {
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        return state
    }
    mutating func isOne(in count: UInt64) -> Bool { word() % count == 0 }
    mutating func pick<Element>(_ list: [Element]) -> Element { list[Int(word() % UInt64(list.count))] }

    mutating func title() -> [UInt8] { (0..<word() % 5).map { _ in UInt8(truncatingIfNeeded: word()) } }

    private static let values = [
        "null", "true", "false", "0", "1", "2", "-1", "0.5", "1.0", "1e300", "18446744073709551615", "1700000000",
        #""""#, #""1""#, #""0""#, #""+1""#, #""x""#, #""true""#, #""0.5""#, #""inf""#, #""\u0000""#, #""é\n""#,
        #""com.gexin.ios.silence""#, #""default""#, #""active""#, #""start""#, #""update""#, #""end""#, #""Ride""#,
        "[]", "{}", "[1]", "[null]", #"["a",1]"#, #"{"title":"t"}"#, #"{"title":"","body":""}"#, #"{"body":7}"#,
        #"{"title":null}"#, #"{"loc-key":"k","loc-args":["a",1]}"#, #"{"critical":"1","name":"n","volume":0.5}"#,
    ]
    private static let keys = [
        "alert", "badge", "sound", "content-available", "mutable-content", "category", "thread-id", "event",
        "timestamp", "content-state", "attributes-type", "attributes", "relevance-score", "interruption-level",
        "dismissal-date", "x", #"al\u0065rt"#, #"s\u006Fund"#,
    ]
    private static let likely = [
        "content-available": "1", "event": #""update""#, "timestamp": "1700000000", "content-state": #"{"a":1}"#,
        "attributes-type": #""Ride""#, "attributes": "{}", "sound": #""""#,
    ]

    mutating func ios() -> String {
        var members: [String] = []
        let type = pick(["", "notify", "notify", "liveactivity", "liveactivity", "voip"])
        if !type.isEmpty { members.append(#""type":"\#(type)""#) }
        if type == "liveactivity" || isOne(in: 10) { members.append(#""laId":"ride""#) }
        var aps: [String] = []
        let count = type == "liveactivity" ? 7 : 1 + Int(word() % 4)
        for place in 0..<count {
            let isUsual = type == "liveactivity" && place < 5
            let key = isUsual ? Self.keys[7 + place] : pick(Self.keys)
            let value = isOne(in: 3) ? pick(Self.values) : Self.likely[key] ?? pick(Self.values)
            aps.append("\"\(key)\":\(value)")
        }
        members.append(#""aps":{\#(aps.joined(separator: ","))}"#)
        if isOne(in: 4) { members.append(#""auto_badge":\#(pick(["1", #""+1""#, #""""#, "true", "null"]))"#) }
        if isOne(in: 4) {
            let id = pick([#""a""#, "7", #""é""#, #""a b""#, #"" ""#, #""a\t""#, "null", #""\u007f""#])
            members.append(#""apns-collapse-id":\#(id)"#)
        }
        if isOne(in: 4) { members.append(#""payload":\#(pick(Self.values))"#) }
        if isOne(in: 8) { members.append(#""multimedia":[{"url":"https://e/x.png","type":1}]"#) }
        if isOne(in: 8) {
            members.append(
                "\"fill\":\"\(String(repeating: pick(["a", "é", #"\u0001"#, "/"]), count: Int(word() % 2_000)))\"")
        }
        return "{\(members.joined(separator: ","))}"
    }
}
