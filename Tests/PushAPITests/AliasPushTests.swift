import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

@Suite("Pushes to an alias")
struct AliasPushTests {
    private let fixture = Fixture()

    private func call(_ audience: String, requestID: String = "req-000001", message: String = "hello") -> PublicAction {
        fixture.call(
            .post, "/v2/demoApp/push/single/alias",
            #"{"request_id":"\#(requestID)","audience":\#(audience),"push_message":{"transmission":"\#(message)"},"#
                + #""push_channel":{"ios":{"aps":{"alert":{"title":"t"}}}}}"#)
    }

    private func push(
        _ audience: String = #"{"alias":["王_1"]}"#, requestID: String = "req-000001", message: String = "hello"
    ) throws -> AliasPush {
        guard case .pushAlias(let push) = call(audience, requestID: requestID, message: message) else {
            throw Fixture.Refused()
        }
        return push
    }

    private func places() -> [DevicePlace] {
        [Fixture.cid, Fixture.otherCID].map { DevicePlace(cid: $0, bucket: fixture.app.bucket(of: $0)) }
    }

    @Test("each device gets a message of its own under one task, which a retry names again")
    func messages() throws {
        let first = try push()
        #expect(first.name == AliasName(app: fixture.app.key, text: "王_1"))
        let commands = first.pushes(to: places()).map(\.seen.command)
        #expect(commands.map(\.cid) == [Fixture.cid, Fixture.otherCID])
        #expect(commands.map(\.bucket) == places().map(\.bucket))
        #expect(commands[0].task == commands[1].task && commands[0].task.text.hasPrefix("RASS_1114_"))
        for command in commands { #expect(command.messageDigest == messageDigest(of: command.task, for: command.cid)) }
        #expect(commands[0].requestKey != commands[1].requestKey, "devices in one bucket would share a row")
        let again = try push().pushes(to: places().reversed()).map(\.seen.command)
        #expect(again[0].task == commands[0].task && again[0].requestKey == commands[1].requestKey)
        #expect(again[0].requestDigest == commands[0].requestDigest)
        #expect(
            try push(message: "other").pushes(to: places())[0].seen.command.requestDigest != commands[0].requestDigest)
        #expect(try push(requestID: "req-000002").pushes(to: places())[0].task != commands[0].task)
        #expect(
            first.pushes(to: places()).map(\.seen.vendorBody).allSatisfy { $0?.contains(commands[0].task.text) == true }
        )
    }

    static let refusals: [(String, String)] = [
        ("null", "audience cannot be null"), ("{}", "audience can not be empty"), (#""all""#, "audience type error"),
        (#"{"cid":["x"]}"#, "alias cannot be null"), (#"{"alias":"a"}"#, "alias type error"),
        (#"{"alias":[]}"#, "alias can not be empty"), (#"{"alias":["a","b"]}"#, "alias size over limit"),
        (#"{"alias":["a b"]}"#, "alias is invalid"), (#"{"alias":[""]}"#, "alias can not be empty"),
        (#"{"alias":[{}]}"#, "alias type error"),
    ]

    @Test("a wrong audience is refused with the parameter's name", arguments: refusals)
    func refused(audience: String, fault: String) {
        #expect(call(audience).text.hasPrefix(#"{"code":20001,"msg":"\#(fault)"#))
    }

    @Test("a bad message is refused before anybody is looked for")
    func badMessage() { #expect(call(#"{"alias":["a"]}"#, requestID: "short").text.contains("request_id is invalid")) }

    @Test("the answer has one task with all devices; who refused stands beside it")
    func answer() throws {
        let pushes = try push().pushes(to: places())
        func render(_ codes: [PublishOutcome.Code]) -> String {
            let outcomes = zip(pushes, codes).map { push, code in
                PublishOutcome(code: code, cid: push.address.cid, task: push.task, isLive: push.itemIndex == 0)
            }
            return PushAnswer.render(outcomes: outcomes, form: PushForm(kind: .alias), durability: .fsync).text
        }
        let task = pushes[0].task.text
        #expect(
            render([.accepted, .accepted]).hasPrefix(
                #"{"code":0,"msg":"success","data":{"\#(task)":{"\#(Fixture.cid)":"successed_online","\#(Fixture.otherCID)":"successed_offline"}},"#
            ))
        #expect(
            render([.ignored, .queueFull]).hasPrefix(
                #"{"code":0,"msg":"success","data":{"\#(task)":{"\#(Fixture.cid)":"successed_ignore"}},"#))
        #expect(render([.ignored, .queueFull]).contains(#""refused":[{"index":1,"code":30009"#))
        #expect(render([.noToken, .queueFull]).hasPrefix(#"{"code":20001,"msg":"strategy is invalid"#))
        #expect(render([.ignored, .requestConflict]).hasPrefix(#"{"code":20001,"msg":"request_id cannot be repeat."#))
        #expect(UserAnswer.nobodyHasAlias.text == #"{"code":20001,"msg":"target user is invalid"}"#)
    }

    @Test("answers of two tasks, as after a retry past midnight, are two objects")
    func twoTasks() throws {
        let pushes = try push().pushes(to: places()) + push(requestID: "req-000002").pushes(to: [places()[0]])
        let outcomes = [pushes[0], pushes[2], pushes[1]].map {
            PublishOutcome(code: .accepted, cid: $0.address.cid, task: $0.task)
        }
        let text = PushAnswer.render(outcomes: outcomes, form: PushForm(kind: .alias), durability: .fsync).text
        let data = text.prefix { $0 != "]" }
        #expect(data.components(of: "\"\(pushes[0].task.text)\":{") == 2)
    }
}

extension Substring {
    fileprivate func components(of needle: String) -> Int {
        var (count, rest) = (1, self)
        while let range = rest.firstRange(of: needle) { (count, rest) = (count + 1, rest[range.upperBound...]) }
        return count
    }
}
