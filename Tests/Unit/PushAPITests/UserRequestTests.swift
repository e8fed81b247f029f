import Quotas
import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

@Suite("Requests of the user calls")
struct UserRequestTests {
    static let cid = Fixture.cid.description
    static let other = Fixture.otherCID.description
    private let fixture = Fixture()

    private func users(
        _ method: APIRequest.Method, _ path: String, _ body: String = "", _ location: SourceLocation = #_sourceLocation
    ) throws -> UserRequest {
        let action = fixture.call(method, "/v2/demoApp" + path, body)
        if case .users(let request) = action { return request }
        Issue.record("not taken: \(action.text)", sourceLocation: location)
        throw Fixture.Refused()
    }

    private func each(_ request: UserRequest) throws -> ([DeviceID], DirectoryOperation.EachStep) {
        guard case .each(let places, let step) = request.work else { throw Fixture.Refused() }
        for place in places { #expect(place.bucket == fixture.app.bucket(of: place.cid)) }
        return (places.map(\.cid), step)
    }

    // MARK: Aliases

    @Test("in a list of aliases a cid's last item counts, numbers are texts, invalid cids are named")
    func bind() throws {
        let body =
            #"{"data_list":[{"cid":"\#(Self.cid)","alias":"first"},{"cid":"nobody","alias":"x"},"#
            + #"{"cid":"\#(Self.other)","alias":12345,"alias_type":"t"},{"cid":"\#(Self.cid)","alias":"王_2"}],"x":1}"#
        for (method, binds) in [(APIRequest.Method.post, true), (.delete, false)] {
            let request = try users(method, "/user/alias", body)
            let items: [AliasItem]
            switch request.work {
            case .bind(let list) where binds: items = list
            case .unbind(let list) where !binds: items = list
            default: throw Fixture.Refused()
            }
            let pairs = items.map { "\($0.device.cid == Fixture.cid ? "cid" : "other")=\($0.name.text)" }
            #expect(pairs == (binds ? ["cid=王_2", "other=12345"] : ["cid=first", "other=12345", "cid=王_2"]))
            #expect(request.notCIDs == ["nobody"])
            #expect(items.allSatisfy { $0.device.bucket == fixture.app.bucket(of: $0.device.cid) })
        }
    }

    @Test("an alias's digest depends on the app and the case, and its bucket is its first bits")
    func aliasDigest() {
        let alias = AliasName(app: fixture.app.key, text: "alice")
        #expect(alias == AliasName(app: fixture.app.key, text: "alice"))
        #expect(alias != AliasName(app: fixture.app.key, text: "Alice"))
        #expect(alias != AliasName(app: AppKey(appID: "otherApp"), text: "alice"))
        #expect(alias.bucket.index == UInt16(alias.high >> 52))
        let tag = TagName(app: fixture.app.key, text: "alice")
        #expect(tag.digest != alias.high && tag.digest != 0)
        #expect(tag != TagName(app: AppKey(appID: "otherApp"), text: "alice"))
    }

    @Test("aliases are queried and unbound by cid and by name, percent-encoded")
    func aliasPaths() throws {
        let query = try users(.get, "/user/alias/cid/\(Self.cid)?alias_type=t")
        #expect(try each(query).0 == [Fixture.cid])
        for (method, path) in [
            (APIRequest.Method.get, "/user/cid/alias/%E7%8E%8B_1?alias_type="), (.delete, "/user/alias/%E7%8E%8B_1/"),
        ] {
            switch try users(method, path, method == .delete ? "null" : "").work {
            case .resolve(let names) where method == .get:
                #expect(names == [AliasName(app: fixture.app.key, text: "王_1")])
            case .unbindAll(let name) where method == .delete: #expect(name.text == "王_1")
            default: Issue.record("another work")
            }
        }
    }

    @Test("each type of alias is a separate namespace, in bodies, queries and pushes")
    func aliasTypes() throws {
        let plain = AliasName(app: fixture.app.key, text: "alice")
        let phone = AliasName(app: fixture.app.key, text: "alice", type: "phone")
        let user = AliasName(app: fixture.app.key, text: "alice", type: "user")
        #expect(Set([plain, phone, user]).count == 3 && Set([plain.type, phone.type, user.type]).count == 3)
        func item(_ alias: String, _ type: String?) -> String {
            #"{"cid":"\#(Self.cid)","alias":"\#(alias)"\#(type.map { #","alias_type":"\#($0)""# } ?? "")}"#
        }
        let items = [item("bob", "phone"), item("alice", nil), item("alice", "user"), item("alice", "phone")]
        let request = try users(.post, "/user/alias", #"{"data_list":[\#(items.joined(separator: ","))]}"#)
        guard case .bind(let bound) = request.work else { throw Fixture.Refused() }
        #expect(bound.map(\.name) == [phone, plain, user], "of two items of one type the last counts")
        guard case .resolve([user]) = try users(.get, "/user/cid/alias/alice?alias_type=user").work,
            case .unbindAll(phone) = try users(.delete, "/user/alias/alice?alias_type=phone", "null").work
        else { throw Fixture.Refused() }
        let fields = #""request_id":"typed-00001","push_message":{"transmission":"x"}"#
        let body = #"{"audience":{"alias":["alice"],"alias_type":"user"},\#(fields)}"#
        guard case .aliases(let pushes, _) = try fixture.campaign(.post, "push/single/alias", body) else {
            throw Fixture.Refused()
        }
        #expect(pushes.map(\.alias) == [user])
        let bad = fixture.call(.get, "/v2/demoApp/user/cid/alias/alice?alias_type=a%20b").response
        #expect(bad?.status == 400 && bad?.text.contains("alias_type is invalid") == true)
    }

    // MARK: Tags, blacklist, badge

    @Test("tags are a set in their original order")
    func tags() throws {
        let request = try users(
            .post, "/user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["vip","\#u{5e7f}","vip",7,"a\/b"]}"#)
        guard case (let devices, .replaceTags(let tags)) = try each(request) else { throw Fixture.Refused() }
        #expect(devices == [Fixture.cid])
        #expect(tags.map(\.text) == ["vip", "广", "7", "a/b"])
        #expect(request.counted == nil)
    }

    @Test("one tag is added to and removed from many cids, each counted; a repeated cid counts once")
    func tagBatch() throws {
        let body = #"{"cid":["\#(Self.cid)","\#(Self.other)","x","\#(Self.cid)"]}"#
        let put = try users(.put, "/user/custom_tag/batch/a%2Fb", body)
        guard case (let devices, .addTags(let tags)) = try each(put) else { throw Fixture.Refused() }
        #expect(devices == [Fixture.cid, Fixture.otherCID] && put.notCIDs == ["x"])
        #expect(tags == [TagName(app: fixture.app.key, text: "a/b")])
        let delete = try users(.delete, "/user/custom_tag/batch/%E5%B9%BF", body)
        guard case (_, .removeTags(let removed)) = try each(delete) else { throw Fixture.Refused() }
        #expect(removed.map(\.text) == ["广"])
        #expect(put.counted == .tagChange && delete.counted == .tagChange)
        #expect(try users(.get, "/user/custom_tag/cid/\(Self.cid)", #"{"custom_tag":["a"]}"#).counted == .tagQuery)
    }

    @Test(
        "the blacklist accepts no body, null, an empty list, or the leftovers of an SDK's previous call",
        arguments: ["", "null", "[]", "{}", #"{"x":1}"#])
    func blacklist(body: String) throws {
        for (method, expected) in [(APIRequest.Method.post, true), (.delete, false)] {
            let request = try users(method, "/user/black/cid/\(Self.cid),,\(Self.other),zz", body)
            guard case (let devices, .setBlacklisted(let isOn)) = try each(request) else { throw Fixture.Refused() }
            #expect(devices == [Fixture.cid, Fixture.otherCID] && isOn == expected && request.notCIDs == ["zz"])
        }
    }

    static let badges: [(String, BadgeChange)] = [
        (#""+1""#, .add(1)), (#""-2""#, .add(-2)), (#""5""#, .set(5)), ("5", .set(5)), ("-3", .add(-3)), ("0", .set(0)),
        (#""+0""#, .add(0)), (#""2147483647""#, .set(.max)),
    ]

    @Test("a badge is a number or its text; a sign makes it a change", arguments: badges)
    func badge(text: String, expected: BadgeChange) throws {
        let request = try users(.post, "/user/badge/cid/\(Self.cid)", #"{"badge":\#(text)}"#)
        guard case (_, .setBadge(let change)) = try each(request) else { throw Fixture.Refused() }
        #expect(change == expected)
    }

    // MARK: Counts

    static let expressions: [(String, Set<String>, Bool)] = [
        (#"[{"key":"custom_tag","values":["a","b"],"opt_type":"and"}]"#, ["a", "b"], true),
        (#"[{"key":"custom_tag","values":["a","b"],"opt_type":"and"}]"#, ["a"], false),
        (#"[{"key":"custom_tag","values":["a","b"],"opt_type":"or"}]"#, ["b"], true),
        (#"[{"key":"custom_tag","values":["a","b"],"opt_type":"not"}]"#, ["c"], true),
        (#"[{"key":"custom_tag","values":["a","b"],"opt_type":"NOT"}]"#, ["b"], false),
        (
            #"[{"key":"custom_tag","values":["a"],"opt_type":"or"},{"key":"custom_tag","values":["b"],"opt_type":"not"}]"#,
            ["a", "b"], false
        ),
        (#"[{"key":"phone_type","values":["IOS"],"opt_type":"or"}]"#, [], true),
        (#"[{"key":"phone_type","values":["android","ios"],"opt_type":"or"}]"#, [], true),
        (#"[{"key":"phone_type","values":["android","ios"],"opt_type":"and"}]"#, [], false),
        (#"[{"key":"phone_type","values":["ANDROID"],"opt_type":"and"}]"#, [], false),
        (#"[{"key":"phone_type","values":["android"],"opt_type":"not"}]"#, [], true),
        (#"[{"key":"phone_type","values":["harmony","web","miniprogram","other"],"opt_type":"or"}]"#, [], false),
    ]

    @Test("tag conditions become the matching expressions", arguments: expressions)
    func conditions(text: String, tags: Set<String>, expected: Bool) throws {
        let request = try users(.post, "/user/count/", #"{"tag":\#(text)}"#)
        guard case .count(let expression) = request.work else { throw Fixture.Refused() }
        #expect(expression.isTrue(ofTags: tags.map { TagName(app: fixture.app.key, text: $0) }) == expected)
    }

    @Test(
        "conditions on phone_type select by platform, beside tags",
        arguments: [
            (#"["android"],"opt_type":"or""#, "android"), (#"["ANDROID","ANDROID"],"opt_type":"and""#, "android"),
            (#"["iOS"],"opt_type":"or""#, "unknown ios"),
            (#"["ios","android"],"opt_type":"or""#, "unknown ios android"),
            (#"["ios","android"],"opt_type":"and""#, ""),
            (#"["android"],"opt_type":"not""#, "unknown ios harmony web miniprogram other"),
            (#"["ios"],"opt_type":"not""#, "android harmony web miniprogram other"),
            (#"["harmony","web"],"opt_type":"or""#, "harmony web"),
            (#"["MiniProgram"],"opt_type":"or""#, "miniprogram"),
        ])
    func platforms(condition: String, selected: String) throws {
        let tag = #"{"key":"custom_tag","values":["a"],"opt_type":"or"}"#
        let body = #"{"tag":[\#(tag),{"key":"phone_type","values":\#(condition)}]}"#
        let request = try users(.post, "/user/count/", body)
        guard case .count(let expression) = request.work else { throw Fixture.Refused() }
        let names = Set(selected.split(separator: " ").map(String.init))
        let owned = TagName(app: fixture.app.key, text: "a")
        for platform in DeviceAttributes.Platform.allCases {
            var detail = DeviceDetail(tags: [owned])
            detail.attributes = DeviceAttributes()
            detail.attributes?.platform = platform
            #expect(expression.isTrue(ofTags: detail.conditionTags) == names.contains(platform.name), "\(platform)")
            detail.tags = []
            #expect(!expression.isTrue(ofTags: detail.conditionTags))
        }
    }

    // MARK: Detail, status

    @Test("detail and device status accept cids joined by commas")
    func details() throws {
        for path in ["/user/detail/", "/user/info/base/", "/user/info/advanced/", "/user/deviceStatus/"] {
            let request = try users(.get, path + "\(Self.cid),\(Self.other),bad")
            let (devices, step) = try each(request)
            switch step {
            case .describe: #expect(path == "/user/deviceStatus/")
            case .describeWithAttributes: #expect(path != "/user/deviceStatus/")
            default: throw Fixture.Refused()
            }
            #expect(devices == [Fixture.cid, Fixture.otherCID] && request.notCIDs == ["bad"])
        }
    }

    // MARK: Refusals

    private static let c = cid
    static let refusals: [(APIRequest.Method, String, String, String)] = [
        (.post, "/user/alias", "", "20001 data_list cannot be null"),
        (.post, "/user/alias", "null", "20001 data_list cannot be null"),
        (.post, "/user/alias", "{bad", "1 body is not JSON"),
        (.post, "/user/alias", #"{"data_list":[]}"#, "20001 data_list can not be empty"),
        (.post, "/user/alias", #"{"data_list":"x"}"#, "20001 data_list type error"),
        (.post, "/user/alias", #"{"data_list":["x"]}"#, "20001 data_list type error"),
        (.post, "/user/alias", #"{"data_list":[{"alias":"a"}]}"#, "20001 cid cannot be null"),
        (.post, "/user/alias", #"{"data_list":[{"cid":"","alias":"a"}]}"#, "20001 cid can not be empty"),
        (.post, "/user/alias", #"{"data_list":[{"cid":5,"alias":"a"}]}"#, "20001 cid type error"),
        (.post, "/user/alias", #"{"data_list":[{"cid":"\#(c)"}]}"#, "20001 alias cannot be null"),
        (.post, "/user/alias", #"{"data_list":[{"cid":"\#(c)","alias":""}]}"#, "20001 alias can not be empty"),
        (.post, "/user/alias", #"{"data_list":[{"cid":"\#(c)","alias":["a"]}]}"#, "20001 alias type error"),
        (.post, "/user/alias", #"{"data_list":[{"cid":"\#(c)","alias":"a b"}]}"#, "20001 alias is invalid"),
        (
            .delete, "/user/alias", #"{"data_list":[{"cid":"\#(c)","alias":"\#(String(repeating: "a", count: 40))"}]}"#,
            "20001 alias size over limit, at most 39"
        ),
        (.delete, "/user/alias/a%20b", "", "20001 alias is invalid"),
        (.get, "/user/cid/alias/%FF", "", "20001 alias is invalid"),
        (.get, "/user/alias/cid/nobody", "", "20001 target user is invalid"),
        (.post, "/user/custom_tag/cid/nobody", #"{"custom_tag":["a"]}"#, "20001 target user is invalid"),
        (.post, "/user/custom_tag/cid/\(c)", "{}", "20001 custom_tag cannot be null"),
        (.post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":[]}"#, "20001 custom_tag can not be empty"),
        (.post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":"a"}"#, "20001 custom_tag type error"),
        (.post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":[null]}"#, "20001 custom_tag type error"),
        (.post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":[""]}"#, "20001 custom_tag can not be empty"),
        (.post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":["a b"]}"#, "20001 custom_tag is invalid"),
        (
            .post, "/user/custom_tag/cid/\(c)", #"{"custom_tag":["\#(String(repeating: "广", count: 33))"]}"#,
            "30005 custom_tag is too long"
        ),
        (
            .post, "/user/custom_tag/cid/\(c)",
            #"{"custom_tag":[\#((0...100).map { #""t\#($0)""# }.joined(separator: ","))]}"#,
            "20001 custom_tag size over limit, at most 100 tags"
        ),
        (
            .post, "/user/custom_tag/cid/\(c)",
            #"{"custom_tag":[\#((0..<17).map { #""\#(100 + $0)\#(String(repeating: "t", count: 28))""# }.joined(separator: ","))]}"#,
            "20001 custom_tag size over limit, at most 512 characters"
        ),
        (.put, "/user/custom_tag/batch/t", "{}", "20001 cid cannot be null"),
        (.put, "/user/custom_tag/batch/t", #"{"cid":[]}"#, "20001 cid can not be empty"),
        (.put, "/user/custom_tag/batch/t", #"{"cid":"\#(c)"}"#, "20001 cid type error"),
        (.delete, "/user/custom_tag/batch/t", #"{"cid":[1,null]}"#, "20001 cid type error"),
        (.put, "/user/custom_tag/batch/a%20b", #"{"cid":["\#(c)"]}"#, "20001 custom_tag is invalid"),
        (
            .delete, "/user/custom_tag/batch/\(String(repeating: "t", count: 33))", #"{"cid":["\#(c)"]}"#,
            "30005 custom_tag is too long"
        ),
        (.post, "/user/black/cid/,", "", "20001 cid can not be empty"),
        (.post, "/user/badge/cid/\(c)", "", "20001 badge cannot be null"),
        (.post, "/user/badge/cid/\(c)", #"{"badge":""}"#, "20001 badge can not be empty"),
        (.post, "/user/badge/cid/\(c)", #"{"badge":true}"#, "20001 badge type error"),
        (.post, "/user/badge/cid/\(c)", #"{"badge":"one"}"#, "20001 badge is invalid"),
        (.post, "/user/badge/cid/\(c)", #"{"badge":"99999999999"}"#, "20001 badge is invalid"),
        (.post, "/user/count", "{}", "20001 tag cannot be null"),
        (.post, "/user/count", #"{"tag":[]}"#, "20001 tag can not be empty"),
        (.post, "/user/count", #"{"tag":{"key":"a"}}"#, "20001 tag type error"),
        (.post, "/user/count", #"{"tag":["x"]}"#, "20001 tag type error"),
        (.post, "/user/count", #"{"tag":[{"values":["a"],"opt_type":"or"}]}"#, "20001 key cannot be null"),
        (
            .post, "/user/count", #"{"tag":[{"key":"region","values":[11000000],"opt_type":"or"}]}"#,
            "20001 region is invalid"
        ),
        (
            .post, "/user/count", #"{"tag":[{"key":"portrait","values":["x"],"opt_type":"not"}]}"#,
            "20001 portrait is invalid"
        ),
        (.post, "/user/count", #"{"tag":[{"key":"age","values":["a"],"opt_type":"or"}]}"#, "20001 key is invalid"),
        (.post, "/user/count", #"{"tag":[{"key":"custom_tag","values":["a"]}]}"#, "20001 opt_type cannot be null"),
        (
            .post, "/user/count", #"{"tag":[{"key":"custom_tag","values":["a"],"opt_type":"xor"}]}"#,
            "20001 opt_type is invalid"
        ),
        (.post, "/user/count", #"{"tag":[{"key":"custom_tag","opt_type":"or"}]}"#, "20001 values cannot be null"),
        (
            .post, "/user/count", #"{"tag":[{"key":"custom_tag","values":[],"opt_type":"or"}]}"#,
            "20001 values can not be empty"
        ),
        (
            .post, "/user/count", #"{"tag":[{"key":"phone_type","values":["symbian"],"opt_type":"or"}]}"#,
            "20001 values is invalid"
        ),
        (
            .post, "/user/count",
            #"{"tag":[{"key":"custom_tag","values":[\#((0..<64).map { #""t\#($0)""# }.joined(separator: ","))],"opt_type":"or"}]}"#,
            "30016 too many tags"
        ),
        (
            .post, "/user/count",
            #"{"tag":[{"key":"custom_tag","values":["\#(String(repeating: "t", count: 33))"],"opt_type":"or"}]}"#,
            "30005 custom_tag is too long"
        ),
    ]

    @Test("an invalid value is refused with the documented code and the parameter's name", arguments: refusals)
    func refused(method: APIRequest.Method, path: String, body: String, fault: String) throws {
        let response = try #require(fixture.call(method, "/v2/demoApp" + path, body).response)
        let parts = fault.split(separator: " ", maxSplits: 1)
        #expect(response.text.hasPrefix(#"{"code":\#(parts[0]),"msg":"\#(parts[1])"#), "\(response.text)")
        let code = try #require(Int(parts[0]).flatMap { GetuiCode(rawValue: $0) })
        #expect(response.status == code.httpStatus)
        #expect([200, 400, 401, 403].contains(response.status))
    }

    @Test("lists and paths have their documented limits, and configuration changes them")
    func limits() throws {
        func cids(_ count: Int) -> String {
            (0..<count).map { DeviceID(high: 1, low: UInt64($0)).description }.joined(separator: ",")
        }
        func items(_ count: Int) -> String {
            let list = (0..<count).map { #"{"cid":"\#(DeviceID(high: 1, low: UInt64($0)))","alias":"a"}"# }
            return #"{"data_list":[\#(list.joined(separator: ","))]}"#
        }
        func list(_ count: Int) -> String {
            #"{"cid":["\#(cids(count).split(separator: ",").joined(separator: #"",""#))"]}"#
        }
        let calls: [(APIRequest.Method, Int, (Int) -> (String, String))] = [
            (.post, 1_000, { ("/user/alias", items($0)) }), (.delete, 1_000, { ("/user/alias", items($0)) }),
            (.put, 1_000, { ("/user/custom_tag/batch/t", list($0)) }),
            (.delete, 1_000, { ("/user/custom_tag/batch/t", list($0)) }),
            (.post, 200, { ("/user/black/cid/" + cids($0), "") }),
            (.delete, 200, { ("/user/black/cid/" + cids($0), "") }),
            (.post, 200, { ("/user/badge/cid/" + cids($0), #"{"badge":1}"#) }),
            (.get, 1_000, { ("/user/detail/" + cids($0), "") }),
            (.get, 1_000, { ("/user/info/base/" + cids($0), "") }),
            (.get, 100, { ("/user/deviceStatus/" + cids($0), "") }),
        ]
        for (method, limit, call) in calls {
            let (path, body) = call(limit)
            _ = try users(method, path, body)
            let (longPath, longBody) = call(limit + 1)
            let response = try #require(fixture.call(method, "/v2/demoApp" + longPath, longBody).response)
            #expect(response.text.hasPrefix(#"{"code":20001,"msg":""#) && response.text.contains("size over limit"))
        }
        fixture.api.userLimits.blacklistDevices = 1
        #expect(
            fixture.call(.post, "/v2/demoApp/user/black/cid/" + cids(2)).text.contains("size over limit, at most 1"))
    }

    static let routes: [(APIRequest.Method, String, String)] = [
        (.get, "/user/alias", "POST, DELETE"), (.put, "/user/alias/cid/\(c)", "GET, HEAD"),
        (.post, "/user/cid/alias/a", "GET, HEAD"),
        (.get, "/user/alias/a", "DELETE"), (.delete, "/user/custom_tag/cid/\(c)", "GET, HEAD, POST"),
        (.get, "/user/custom_tag/batch/t", "PUT, DELETE"), (.get, "/user/black/cid/\(c)", "POST, DELETE"),
        (.get, "/user/badge/cid/\(c)", "POST"), (.post, "/user/detail/\(c)", "GET, HEAD"),
        (.post, "/user/info/advanced/\(c)", "GET, HEAD"), (.get, "/user/bind_dt/wx", "POST"),
        (.get, "/user/test/cid/add", "POST"), (.post, "/user/test/cid/list", "GET, HEAD"),
        (.post, "/user/deviceStatus/\(c)", "GET, HEAD"), (.get, "/user/count", "POST"),
        (.get, "/push/single/alias", "POST"),
    ]

    @Test("a wrong method is 405 and names the right one; a call without a token is 10001", arguments: routes)
    func methods(method: APIRequest.Method, path: String, allowed: String) throws {
        let response = try #require(fixture.call(method, "/v2/demoApp" + path).response)
        #expect(response.status == 405 && response.allow == allowed)
        let right: APIRequest.Method =
            allowed.hasPrefix("POST")
            ? .post : allowed.hasPrefix("PUT") ? .put : allowed.hasPrefix("GET") ? .get : .delete
        for token in ["", "bad"] {
            let refused = try #require(fixture.call(right, "/v2/demoApp" + path, token: token).response)
            #expect(refused.status == 401 && refused.text.hasPrefix(#"{"code":10001"#))
        }
    }

    @Test(
        "a path that only resembles one of these is 404",
        arguments: [
            "/user", "/user/alias/cid", "/user/alias/x/\(c)", "/user/custom_tag", "/user/custom_tag/cid",
            "/user/black/\(c)",
            "/user/count/x", "/user/detail", "/user/cid/alias",
        ])
    func notFound(path: String) throws {
        let response = try #require(fixture.call(.post, "/v2/demoApp" + path, "{}").response)
        // `DELETE /user/alias/{alias}` also matches an alias called "cid".
        #expect(response.status == (path == "/user/alias/cid" ? 405 : 404))
    }
}
