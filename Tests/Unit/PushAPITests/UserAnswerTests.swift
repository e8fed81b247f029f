import Quotas
import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

@Suite("Answers of the user calls")
struct UserAnswerTests {
    static let cid = Fixture.cid.description
    static let other = Fixture.otherCID.description
    private let fixture = Fixture()

    /// Runs a call to its end, answers each step with `reply`, and renders the result.
    private func answer(
        _ method: APIRequest.Method, _ path: String, _ body: String = "", reply: (DirectoryStep) -> DirectoryReply
    ) throws -> APIResponse {
        guard case .users(let request) = fixture.call(method, "/v2/demoApp" + path, body) else {
            throw Fixture.Refused()
        }
        var operation = DirectoryOperation(request.work, loopCount: 2)
        var steps = operation.start()
        while let step = steps.popLast() { steps += operation.receive(step.request, reply(step.step)) }
        try #require(operation.isDone)
        return UserAnswer.render(request, operation)
    }

    private func bind(_ reply: (DirectoryStep) -> DirectoryReply) throws -> String {
        let body =
            #"{"data_list":[{"cid":"\#(Self.cid)","alias":"a"},{"cid":"\#(Self.other)","alias":"a"},{"cid":"x","alias":"a"}]}"#
        return try answer(.post, "/user/alias", body, reply: reply).text
    }

    private func bound(_ step: DirectoryStep) -> DirectoryReply {
        switch step {
        case .reserve: .reserved(stamp: 1)
        case .setAlias: .aliasSet(previous: nil, stamp: 0)
        default: .done
        }
    }

    @Test("a bind has no data; unknown devices are named, a full alias and a failing store are errors")
    func binding() throws {
        #expect(try bind(bound) == #"{"code":0,"msg":"success","longwire":{"unknown":["x"]}}"#)
        let gone = try bind { step in
            if case .setAlias(Fixture.cid, _, _) = step { return .unknown }
            return bound(step)
        }
        #expect(gone == #"{"code":0,"msg":"success","longwire":{"unknown":["\#(Self.cid)","x"]}}"#)
        let nobody = try bind { step in
            if case .setAlias = step { return .unknown }
            return bound(step)
        }
        #expect(nobody == #"{"code":20001,"msg":"target user is invalid"}"#)
        let full = try bind { step in
            switch step {
            case .reserve(_, Fixture.otherCID, _):
                .full([AliasEntry(cid: Fixture.cid, bucket: Bucket(1), stamp: 1)])
            case .holds: .held
            default: bound(step)
            }
        }
        #expect(full.hasPrefix(#"{"code":20001,"msg":"alias size over limit, cid \#(Self.other) was not bound"#))
        let busy = try bind { step in
            if case .reserve(_, Fixture.cid, _) = step { return .failed }
            return bound(step)
        }
        #expect(busy == #"{"code":30019,"msg":"the gateway is busy, 1 of 2 were not done, retry"}"#)
    }

    @Test("an unbind of an unbound alias succeeds and reports that")
    func unbinding() throws {
        let body = #"{"data_list":[{"cid":"\#(Self.cid)","alias":"a"}]}"#
        let text = try answer(.delete, "/user/alias", body) { _ in .notHeld(isStale: false) }.text
        #expect(text == #"{"code":0,"msg":"success","longwire":{"notBound":["\#(Self.cid)"]}}"#)
        #expect(try answer(.delete, "/user/alias/a") { _ in .members([]) }.text == #"{"code":0,"msg":"success"}"#)
        #expect(try answer(.delete, "/user/alias/a") { _ in .failed }.text.hasPrefix(#"{"code":30019"#))
    }

    @Test("an alias and its devices are answered in Getui's format")
    func aliases() throws {
        let entries = [Fixture.cid, Fixture.otherCID].map { AliasEntry(cid: $0, bucket: Bucket(1), stamp: 1) }
        let devices = try answer(.get, "/user/cid/alias/a") { step in
            if case .members = step { return .members(entries) }
            if case .holds(Fixture.otherCID, _, _) = step { return .notHeld(isStale: true) }
            return .held
        }
        #expect(devices.text == #"{"code":0,"msg":"success","data":{"cid":["\#(Self.cid)"]}}"#)
        #expect(
            try answer(.get, "/user/cid/alias/a") { _ in .members([]) }.text
                == #"{"code":0,"msg":"success","data":{"cid":[]}}"#)
        var detail = DeviceDetail(aliases: [AliasName(app: fixture.app.key, text: "王")])
        func alias() throws -> String { try answer(.get, "/user/alias/cid/\(Self.cid)") { _ in .device(detail) }.text }
        #expect(try alias() == #"{"code":0,"msg":"success","data":{"alias":"王"}}"#)
        detail.aliases = []
        #expect(try alias() == #"{"code":0,"msg":"success","data":{"alias":""}}"#)
        #expect(
            try answer(.get, "/user/alias/cid/\(Self.cid)") { _ in .unknown }.text
                == #"{"code":20001,"msg":"target user is invalid"}"#)
    }

    @Test("a device's tags are one text, joined by spaces")
    func tags() throws {
        func text(_ tags: [String]) throws -> String {
            let detail = DeviceDetail(tags: tags.map { TagName(app: fixture.app.key, text: $0) })
            return try answer(.get, "/user/custom_tag/cid/\(Self.cid)") { _ in .device(detail) }.text
        }
        #expect(try text(["t1", "t2"]) == #"{"code":0,"msg":"success","data":{"\#(Self.cid)":["t1 t2"]}}"#)
        #expect(try text([]) == #"{"code":0,"msg":"success","data":{"\#(Self.cid)":[]}}"#)
    }

    static let replaced: [(DirectoryReply, String)] = [
        (.done, #"{"code":0,"msg":"success"}"#), (.unknown, #"{"code":20001,"msg":"target user is invalid"}"#),
        (.tooMany, #"{"code":20001,"msg":"custom_tag size over limit"}"#),
        (.tooOften, #"{"code":30011,"msg":"the tags of this cid were set too often today"}"#),
        (.failed, #"{"code":30019,"msg":"the gateway is busy, nothing was done, retry"}"#),
    ]

    @Test("replacing tags succeeds or has the reason", arguments: replaced)
    func replacing(reply: DirectoryReply, text: String) throws {
        let answer = try answer(.post, "/user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["a"]}"#) { _ in reply }
        #expect(answer.text == text)
        #expect(answer.status == (text.contains(":0,") ? 200 : text.contains("20001") ? 400 : 403))
    }

    @Test("a tag given to many devices has the text true or false for each, and 23001 if no device got it")
    func batch() throws {
        let body = #"{"cid":["\#(Self.cid)","\#(Self.other)","x"]}"#
        for method in [APIRequest.Method.put, .delete] {
            let some = try answer(method, "/user/custom_tag/batch/t", body) { step in
                switch step {
                case .addTags(Fixture.cid, _), .removeTags(Fixture.cid, _): .done
                default: method == .put ? .tooMany : .unknown
                }
            }
            #expect(
                some.text.hasPrefix(
                    #"{"code":0,"msg":"success","data":{"\#(Self.cid)":"true","\#(Self.other)":"false","x":"false"},"longwire":"#
                ))
            let none = try answer(method, "/user/custom_tag/batch/t", body) { _ in .unknown }
            #expect(none.text.hasPrefix(#"{"code":23001,"msg":"tag operation failed"#) && none.status == 400)
        }
        #expect(try answer(.put, "/user/custom_tag/batch/t", body) { _ in .failed }.text.hasPrefix(#"{"code":30019"#))
    }

    @Test("blacklist and badge answer without data; only unknown users are an error")
    func changes() throws {
        for (method, path, body) in [
            (APIRequest.Method.post, "/user/black/cid/", ""), (.delete, "/user/black/cid/", ""),
            (.post, "/user/badge/cid/", #"{"badge":"+1"}"#),
        ] {
            #expect(try answer(method, path + Self.cid, body) { _ in .done }.text == #"{"code":0,"msg":"success"}"#)
            #expect(
                try answer(method, path + "x,y", body) { _ in .done }.text
                    == #"{"code":20001,"msg":"target user is invalid"}"#)
            #expect(
                try answer(method, path + Self.cid, body) { _ in .unknown }.text
                    == #"{"code":20001,"msg":"target user is invalid"}"#)
        }
    }

    @Test("detail has Getui's names and types")
    func detail() throws {
        let device = DeviceDetail(
            isBlacklisted: true, registeredAt: 1_767_323_045_678, sessionCount: 9, token: "ab12",
            topic: "com.example.shop")
        let text = try answer(.get, "/user/detail/\(Self.cid),\(Self.other),zz") { step in
            if case .describe(Fixture.cid, _) = step { return .device(device) }
            return .unknown
        }.text
        #expect(
            text
                == #"{"code":0,"msg":"success","data":{"invalidCids":["\#(Self.other)","zz"],"validCids":{"\#(Self.cid)":{"#
                + #""client_app_id":"demoApp","package_name":"com.example.shop","device_token":"ab12","phone_type":2,"#
                + #""phoneModel":"","notificationSwitch":true,"createTime":"2026-01-02 03:04:05","loginFreq":9}}},"#
                + #""longwire":{"blacklisted":["\#(Self.cid)"]}}"#)
    }

    private static func attributes(_ platform: DeviceAttributes.Platform) -> DeviceAttributes {
        var attributes = DeviceAttributes()
        (attributes.platform, attributes.brand, attributes.model) = (platform, "HUAWEI", "Mate 60")
        (attributes.appVersion, attributes.locale) = ("2.7.0", "zh-Hans-CN")
        attributes.notificationPermission = .allowed
        return attributes
    }

    @Test("detail has the platform, the model and the permission that the app named, and all attributes apart")
    func attributes() throws {
        let device = DeviceDetail(
            registeredAt: 1_767_323_045_678, sessionCount: 9, topic: "com.example",
            attributes: Self.attributes(.android))
        let text = try answer(.get, "/user/detail/\(Self.cid)") { _ in .device(device) }.text
        #expect(
            text
                == #"{"code":0,"msg":"success","data":{"invalidCids":[],"validCids":{"\#(Self.cid)":{"#
                + #""client_app_id":"demoApp","package_name":"com.example","device_token":"","phone_type":1,"#
                + #""phoneModel":"Mate 60","notificationSwitch":true,"createTime":"2026-01-02 03:04:05","loginFreq":9}}},"#
                + #""longwire":{"attributes":{"\#(Self.cid)":{"platform":"android","brand":"HUAWEI","model":"Mate 60","#
                + #""appVersion":"2.7.0","locale":"zh-Hans-CN","notificationPermission":"allowed"}}}}"#)
    }

    @Test(
        "phone_type is Getui's number of the platform, and the brand is the app's, or apple for iOS",
        arguments: [
            (DeviceAttributes.Platform.unknown, 1), (.android, 1), (.ios, 2), (.harmony, 3), (.web, 0),
            (.miniProgram, 0), (.other, 0),
        ])
    func phoneType(platform: DeviceAttributes.Platform, number: Int) throws {
        // The token's vendor is Android's, and counts only without a platform.
        let device = DeviceDetail(token: "ab", platform: .android, attributes: Self.attributes(platform))
        let text = try answer(.get, "/user/info/base/\(Self.cid)") { _ in .device(device) }.text
        #expect(text.contains(#""phone_type":\#(number),"phone_model":"Mate 60""#))
        #expect(text.contains(platform == .ios ? #""brand":"apple""# : #""brand":"HUAWEI""#))
    }

    @Test("a denied permission and push mode off switch the notifications off")
    func notifications() throws {
        var device = DeviceDetail(token: "ab", attributes: Self.attributes(.ios))
        func isOn() throws -> Bool {
            let found = device
            return try answer(.get, "/user/detail/\(Self.cid)") { _ in .device(found) }.text.contains(
                #""notificationSwitch":true"#)
        }
        #expect(try isOn())
        device.pushModeOff = true
        #expect(try !isOn())
        device.pushModeOff = false
        device.attributes?.notificationPermission = .denied
        #expect(try !isOn())
        device.attributes?.notificationPermission = .unknown
        #expect(try isOn())
        device.token = ""
        #expect(try !isOn())
    }

    @Test("the newer calls use their own names for the same values", arguments: ["base", "advanced"])
    func info(kind: String) throws {
        let device = DeviceDetail(registeredAt: 1_767_323_045_678, sessionCount: 9, token: "ab12", topic: "com.example")
        let text = try answer(.get, "/user/info/\(kind)/\(Self.cid),zz") { _ in .device(device) }.text
        #expect(
            text
                == #"{"code":0,"msg":"success","data":{"invalidCids":["zz"],"validCids":{"\#(Self.cid)":{"#
                + #""client_app_id":"demoApp","package_name":"com.example","device_token":"ab12","phone_type":2,"#
                + #""phone_model":"","notification_switch":true,"create_time":"2026-01-02 03:04:05","login_freq":9,"#
                + #""brand":"apple"}}}}"#)
    }

    @Test("device status has the connection and the reachability; unknown devices are absent")
    func deviceStatus() throws {
        let text = try answer(.get, "/user/deviceStatus/\(Self.cid),\(Self.other)") { step in
            if case .describe(Fixture.cid, _) = step { return .device(DeviceDetail(isConnected: true)) }
            return .unknown
        }.text
        #expect(
            text
                == #"{"code":0,"msg":"success","data":{"\#(Self.cid)":{"cid_status":"offline","device_status":"online"}},"#
                + #""longwire":{"unknown":["\#(Self.other)"]}}"#)
    }

    @Test("a count is the sum over the loops, as a number")
    func count() throws {
        let body = #"{"tag":[{"key":"custom_tag","values":["a"],"opt_type":"or"}]}"#
        #expect(
            try answer(.post, "/user/count", body) { _ in .count(21) }.text
                == #"{"code":0,"msg":"success","data":{"user_count":42}}"#)
        #expect(try answer(.post, "/user/count", body) { _ in .failed }.text.hasPrefix(#"{"code":30019"#))
    }

    @Test("an exceeded quota has the code of its kind")
    func quotas() throws {
        func refused(_ method: APIRequest.Method, _ path: String, _ body: String, _ verdict: RateLimiter.Verdict) throws
            -> APIResponse
        {
            guard case .users(let request) = fixture.call(method, "/v2/demoApp" + path, body) else {
                throw Fixture.Refused()
            }
            return UserAnswer.refused(request, verdict)
        }
        let body = #"{"cid":["\#(Self.cid)"]}"#
        let minute = try refused(.put, "/user/custom_tag/batch/t", body, .minuteExceeded)
        #expect(minute.status == 403 && minute.text.hasPrefix(#"{"code":30012,"#))
        let day = try refused(.delete, "/user/custom_tag/batch/t", body, .dayExceeded)
        #expect(day.status == 403 && day.text.hasPrefix(#"{"code":30011,"#))
        let query = try refused(.get, "/user/custom_tag/cid/\(Self.cid)", "", .minuteExceeded)
        #expect(query.status == 401 && query.text.hasPrefix(#"{"code":10005,"#))
    }

    @Test(
        "readable times are in UTC",
        arguments: [
            (Int64(0), "1970-01-01 00:00:00"), (951_782_399_999, "2000-02-28 23:59:59"),
            (951_868_800_000, "2000-03-01 00:00:00"),
            (1_709_164_800_000, "2024-02-29 00:00:00"), (4_102_444_799_000, "2099-12-31 23:59:59"),
        ])
    func times(time: Int64, text: String) { #expect(dateTime(time) == text) }
}
