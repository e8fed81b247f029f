import Delivery
import Directory
import Testing
import Wire

@testable import PushAPI

@Suite("Test devices, and other vendors' device tokens")
struct TestDeviceTests {
    private static let cid = Fixture.cid.description
    private static let other = Fixture.otherCID.description
    private static let path = "/v2/demoApp/user/test/cid/"
    private let fixture = Fixture()

    private func request(
        _ method: APIRequest.Method, _ path: String, _ body: String = ""
    ) throws -> TestDeviceRequest {
        let action = fixture.call(method, Self.path + path, body)
        guard case .testDevices(let request) = action else {
            Issue.record("not taken: \(action.text)")
            throw Fixture.Refused()
        }
        return request
    }

    private func ask(
        _ book: inout TestDeviceList, _ method: APIRequest.Method, _ path: String, _ body: String = "",
        known: Set<DeviceID> = [], limit: Int = 10, now: GatewayTime = Fixture.now,
        described: (DevicePlace) -> ItemOutcome = { _ in .unknown }
    ) throws -> String {
        let request = try request(method, path, body)
        let result = book.perform(request, known: known, limit: limit, now: now).result
        let page = result.pagePlaces(of: fixture.app).map(described)
        return TestDeviceAnswer.render(request, result, page: page).text
    }

    private func add(_ items: (String, String)...) -> String {
        let list = items.map { #"{"cid":"\#($0.0)","remark":"\#($0.1)"}"# }
        return #"{"cid_list":[\#(list.joined(separator: ","))]}"#
    }

    private func names(_ text: String) -> [String] {
        [Self.cid, Self.other].filter { text.contains(#""cid":"\#($0)""#) }
    }

    @Test("a device is added to the list, renamed, found by cid and by a part of its name, and removed")
    func life() throws {
        var book = TestDeviceList()
        let known: Set = [Fixture.cid, Fixture.otherCID]
        let asked = try request(.post, "add", add((Self.cid, "我的手机"), (Self.other, "second"), (Self.cid, "mine")))
        #expect(asked.lookUp.map(\.cid) == [Fixture.cid, Fixture.otherCID])
        #expect(
            try ask(&book, .post, "add", add((Self.cid, "我的手机"), (Self.other, "second"), ("x", "")), known: known)
                == #"{"code":0,"msg":"success","data":{"success":["\#(Self.cid)","\#(Self.other)"],"failed":["x"]}}"#)
        let later = Fixture.now + 60_000
        #expect(
            try ask(&book, .post, "update", #"{"cid":"\#(Self.other)","remark":"zweites"}"#, now: later)
                == #"{"code":0,"msg":"success"}"#)
        #expect(
            try ask(&book, .get, "list?remark=zwei&pageNum=1&pageSize=5")
                == #"{"code":0,"msg":"success","data":{"list":[{"cid":"\#(Self.other)","remark":"zweites","phone_type":"0","#
                + #""update_time":"2023-11-14 22:14:20","create_time":"2023-11-14 22:13:20"}],"#
                + #""pagination":{"total_page":1,"page_size":5,"total":1,"current_page":1}}}"#)
        #expect(names(try ask(&book, .get, "list")) == [Self.cid, Self.other])
        #expect(names(try ask(&book, .get, "list?cid=\(Self.cid)")) == [Self.cid])
        #expect(names(try ask(&book, .get, "list?remark=%E6%89%8B")) == [Self.cid], "as Java encodes it")
        #expect(names(try ask(&book, .get, "list?remark=%20&cid=")) == [Self.cid, Self.other])
        #expect(
            try ask(&book, .post, "delete", #"{"cid_list":["\#(Self.cid)","x"]}"#)
                == #"{"code":0,"msg":"success","longwire":{"unknown":["x"]}}"#)
        #expect(names(try ask(&book, .get, "list")) == [Self.other])
    }

    @Test("the list shows the platform of each device, as the calls about devices do; 0 for a deleted device")
    func platforms() throws {
        var book = TestDeviceList()
        let cids = [Fixture.cid, Fixture.otherCID, DeviceID(high: 1, low: 1), DeviceID(high: 1, low: 2)]
        for cid in cids { _ = try ask(&book, .post, "add", add(("\(cid)", "a")), known: [cid], limit: 100) }
        var attributes = DeviceAttributes()
        attributes.platform = .android
        let details = [
            cids[0]: DeviceDetail(attributes: attributes), cids[1]: DeviceDetail(),
            cids[2]: DeviceDetail(token: "t", platform: .harmony),
        ]
        let text = try ask(&book, .get, "list") { place in details[place.cid].map { .device($0) } ?? .unknown }
        for (cid, type) in zip(cids, ["1", "2", "3", "0"]) {
            #expect(text.contains(#"{"cid":"\#(cid)","remark":"a","phone_type":"\#(type)""#), "\(text)")
        }
    }

    @Test("unknown devices and those above the limit are named as failed; a second add renames")
    func refusedItems() throws {
        var book = TestDeviceList()
        let both = add((Self.cid, "a"), (Self.other, "b"))
        let one = #"{"code":0,"msg":"success","data":{"success":["\#(Self.cid)"],"failed":["\#(Self.other)"]}"#
        #expect(try ask(&book, .post, "add", both, known: [Fixture.cid]) == one + "}")
        let full = try ask(&book, .post, "add", both, known: [Fixture.cid, Fixture.otherCID], limit: 1)
        #expect(full == one + #","longwire":{"reason":"tooManyTestDevices"}}"#)
        _ = try ask(&book, .post, "add", add((Self.cid, "new")), known: [Fixture.cid], now: Fixture.now + 1_000)
        let text = try ask(&book, .get, "list")
        #expect(text.contains(#""remark":"new""#) && text.contains(#""create_time":"2023-11-14 22:13:20""#))
        #expect(
            try ask(&book, .post, "update", #"{"cid":"\#(Self.other)","remark":"b"}"#)
                == #"{"code":20001,"msg":"target user is invalid"}"#)
    }

    @Test("pages are bounded, and numbers below one mean the first page and ten a page")
    func pages() throws {
        var book = TestDeviceList()
        for number in 0..<25 {
            let cid = DeviceID(high: 1, low: UInt64(number))
            _ = try ask(&book, .post, "add", add(("\(cid)", "\(number)")), known: [cid], limit: 100)
        }
        func page(_ query: String) throws -> (count: Int, text: String) {
            let text = try ask(&book, .get, "list?" + query)
            return (text.split(separator: #""remark":"#).count - 1, text)
        }
        #expect(try page("pageNum=3").count == 5)
        #expect(try page("pageNum=0&pageSize=-4").count == 10)
        #expect(try page("pageNum=9").count == 0)
        #expect(try page("pageNum=\(Int.max)&pageSize=1000").count == 0)
        #expect(
            try page("pageNum=2&pageSize=24").text.hasSuffix(
                #""pagination":{"total_page":2,"page_size":24,"total":25,"current_page":2}}}"#))
        #expect(try page("pageSize=100000").text.contains(#""page_size":1000,"#))
    }

    @Test("a search of remarks is no longer than a remark")
    func longSearch() {
        let longest = String(repeating: "a", count: Limits.remarkCharacterCount)
        guard case .testDevices = fixture.call(.get, Self.path + "list?remark=\(longest)", "") else {
            Issue.record("the longest remark is refused")
            return
        }
        let text = fixture.call(.get, Self.path + "list?remark=\(longest)a", "").text
        #expect(text.contains("remark size over limit"), "\(text)")
    }

    @Test("a row is read as written; a short one is refused")
    func rows() {
        let device = TestDevice(cid: Fixture.cid, remark: "名", createdAt: 7, updatedAt: -8)
        let bytes = device.bytes
        bytes.withUnsafeBytes { bytes in
            #expect(TestDevice(bytes: bytes, low: Fixture.cid.low) == device)
            #expect(TestDevice(bytes: UnsafeRawBufferPointer(rebasing: bytes[..<23]), low: 0) == nil)
        }
    }

    static let refusals: [(APIRequest.Method, String, String, String)] = [
        (.post, "test/cid/add", "", "20001 cid_list cannot be null"),
        (.post, "test/cid/add", #"{"cid_list":[]}"#, "20001 cid_list can not be empty"),
        (.post, "test/cid/add", #"{"cid_list":"x"}"#, "20001 cid_list type error"),
        (.post, "test/cid/add", #"{"cid_list":["x"]}"#, "20001 cid_list type error"),
        (.post, "test/cid/add", #"{"cid_list":[{"remark":"a"}]}"#, "20001 cid cannot be null"),
        (.post, "test/cid/add", #"{"cid_list":[{"cid":"\#(cid)","remark":[1]}]}"#, "20001 remark type error"),
        (
            .post, "test/cid/add",
            #"{"cid_list":[{"cid":"\#(cid)","remark":"\#(String(repeating: "长", count: 201))"}]}"#,
            "20001 remark size over limit, at most 200 characters"
        ),
        (.post, "test/cid/update", #"{"cid":"x","remark":"a"}"#, "20001 target user is invalid"),
        (.post, "test/cid/update", #"{"cid":""}"#, "20001 cid can not be empty"),
        (.post, "test/cid/delete", #"{"cid_list":[5]}"#, "20001 cid_list type error"),
        (.get, "test/cid/list?pageNum=x", "", "20001 pageNum type error"),
        (.get, "test/cid/list?pageSize=1.5", "", "20001 pageSize type error"),
        (.post, "bind_dt/wx", "", "20001 dt_list cannot be null"),
        (.post, "bind_dt/wx", #"{"dt_list":{}}"#, "20001 dt_list can not be empty"),
        (.post, "bind_dt/wx", #"{"dt_list":[7]}"#, "20001 dt_list type error"),
        (.post, "bind_dt/wx", #"{"dt_list":[{"device_token":"a"}]}"#, "20001 cid cannot be null"),
        (.post, "bind_dt/wx", #"{"dt_list":[{"cid":"a","device_token":1}]}"#, "20001 device_token type error"),
    ]

    @Test("an invalid value is refused with the parameter's name", arguments: refusals)
    func refused(method: APIRequest.Method, path: String, body: String, fault: String) throws {
        let response = try #require(fixture.call(method, "/v2/demoApp/user/" + path, body).response)
        let parts = fault.split(separator: " ", maxSplits: 1)
        #expect(response.text == #"{"code":\#(parts[0]),"msg":"\#(parts[1])"}"# && response.status == 400)
    }

    @Test("lists have their limits, and the app's is configurable")
    func limits() throws {
        fixture.api.userLimits.testDevices = 1
        for path in ["add", "delete"] {
            let body = path == "add" ? add((Self.cid, ""), (Self.cid, "")) : #"{"cid_list":["a","b"]}"#
            #expect(
                fixture.call(.post, Self.path + path, body).text
                    == #"{"code":20001,"msg":"cid_list size over limit, at most 1"}"#)
        }
        let items = [String](repeating: #"{"cid":"a","device_token":"t"}"#, count: 1_001).joined(separator: ",")
        #expect(
            fixture.call(.post, "/v2/demoApp/user/bind_dt/wx", #"{"dt_list":[\#(items)]}"#).text
                == #"{"code":20001,"msg":"dt_list size over limit, at most 1000"}"#)
    }

    @Test("tokens of other vendors are not bound, and each is named; unbinding them changes nothing")
    func deviceTokens() throws {
        func bind(_ list: String) -> String {
            fixture.call(.post, "/v2/demoApp/user/bind_dt/wx", #"{"dt_list":[\#(list)]}"#).text
        }
        #expect(
            bind(#"{"cid":"\#(Self.cid)","device_token":"openid"},{"cid":"\#(Self.other)","device_token":""}"#)
                == #"{"code":0,"msg":"success","data":{"errorList":[{"cid":"\#(Self.cid)","device_token":"openid","#
                + #""error_code":20001}]},"longwire":{"reason":"noSuchChannel"}}"#)
        #expect(bind(#"{"cid":"\#(Self.other)"}"#) == #"{"code":0,"msg":"success"}"#)
    }
}
