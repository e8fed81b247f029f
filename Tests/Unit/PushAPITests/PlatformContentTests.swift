import Delivery
import Testing
import Wire

@testable import PushAPI

@Suite("Contents for Android and HarmonyOS")
struct PlatformContentTests {
    private let fixture = Fixture()

    /// Returns the stored JSON of the only vendor content.
    private func stored(_ channel: String) throws -> String {
        let action = fixture.push(#""push_channel":\#(channel)"#)
        guard case .push(let pushes, _) = action else {
            Issue.record("refused: \(action.response?.text ?? "")")
            return ""
        }
        return String(decoding: try #require(pushes.first).content.arena, as: UTF8.self)
    }

    private func notification(_ members: String) -> String {
        #"{"android":{"ups":{"notification":{"title":"t","body":"b",\#(members)}}}}"#
    }

    @Test("numbers of text members become texts, as the sender reads them")
    func numbers() throws {
        let text = try stored(
            #"{"android":{"ups":{"notification":{"title":123,"body":4,"click_type":"none","channel_id":7,"notify_id":8}}}}"#
        )
        #expect(
            text.contains(
                #"{"title":"123","body":"4","click_type":"none","channel_id":"7","notify_id":8}"#), "\(text)")
    }

    @Test(
        "a part that only a vendor of Android or HarmonyOS sends is named in the answer",
        arguments: [
            (#"{"strategy":{"default":2}}"#, true), (#"{"strategy":{"default":4},"ttl":0}"#, true),
            (#"{"strategy":{"default":4},"ttl":-1}"#, true), (#"{"strategy":{"default":1,"hw":2,"hoshw":2}}"#, true),
            (#"{"strategy":{"default":1,"ios":2}}"#, false), (#"{"strategy":{"default":4},"ttl":60000}"#, false),
            (#"{"strategy":{"default":3}}"#, false),
        ])
    func lostParts(settings: String, isLost: Bool) throws {
        let notification = #"{"title":"t","body":"b","click_type":"none"}"#
        for channel in [
            #"{"android":{"ups":{"notification":\#(notification)}}}"#,
            #"{"harmony":{"notification":{"title":"t","body":"b","click_type":"none"}}}"#,
        ] {
            let action = fixture.push(#""settings":\#(settings),"push_channel":\#(channel)"#)
            guard case .push(_, let form) = action else {
                Issue.record("refused: \(action.text)")
                continue
            }
            #expect(form.notes.lostParts == (isLost ? [0] : []), "\(channel)")
        }
        let whole = fixture.push(
            #""settings":\#(settings),"push_channel":{"android":{"ups":{"transmission":"hello"}}}"#)
        guard case .push(_, let form) = whole else {
            Issue.record("refused: \(whole.text)")
            return
        }
        #expect(form.notes.lostParts.isEmpty)
    }

    @Test("of equal keys the first one is stored, the one that was checked")
    func repeated() throws {
        let text = try stored(notification(#""click_type":"none","notify_id":null,"notify_id":99999999999"#))
        #expect(!text.contains("99999999999"), "\(text)")
    }

    @Test(
        "a content that the sender could not render is refused by its field",
        arguments: [
            (#""click_type":"intent""#, "intent"), (#""click_type":"url","url":"""#, "url"),
            (#""click_type":"payload""#, "payload"), (#""click_type":"payload_custom","payload":null"#, "payload"),
            (#""click_type":"none","category":{"a":1}"#, "category"),
            (#""click_type":"none","slot_type":-5"#, "slot_type"),
            (#""click_type":"none","slot_type":65536"#, "slot_type"),
            (#""click_type":"none","want":{"a":1}"#, "want"),
        ])
    func refused(members: String, field: String) {
        let text = fixture.push(#""push_channel":\#(notification(members))"#).response?.text ?? "accepted"
        #expect(text.contains(#""code":20001,"msg":"\#(field) "#), "\(text)")
    }

    @Test("a HarmonyOS message of another type needs an object of data")
    func custom() throws {
        for custom in [#"{"type":"voip_call"}"#, #"{"type":"voip_call","data":"x"}"#] {
            let text = fixture.push(#""push_channel":{"harmony":{"custom":\#(custom)}}"#).response?.text ?? "accepted"
            #expect(text.contains("harmony.custom.data"), "\(text)")
        }
        let text = try stored(#"{"harmony":{"custom":{"type":"voip_call","data":{"a":1}}}}"#)
        #expect(text.contains(#"{"custom":{"type":"voip_call","data":{"a":1}}}"#), "\(text)")
    }

    @Test("the form of Getui's SDK for Java becomes the same content")
    func namedVendor() throws {
        for payload in [#"{"a":1}"#, #""{\"a\":1}""#] {
            let text = try stored(#"{"harmony":{"custom":{"HW":{"type":"voip_call","payload":\#(payload)}}}}"#)
            #expect(text.contains(#"{"custom":{"type":"voip_call","data":{"a":1}}}"#), "\(text)")
        }
        let wrong = #""push_channel":{"harmony":{"custom":{"HW":{"type":"voip_call","payload":"{"}}}}"#
        #expect(fixture.push(wrong).response?.text.contains("harmony.custom.HW.payload") == true)
    }

    @Test("slot types have names, too")
    func slotTypes() throws {
        _ = try stored(
            #"{"harmony":{"notification":{"title":"t","body":"b","click_type":"none","slot_type":"SERVICE_INFORMATION"}}}"#
        )
        let text = fixture.push(
            #""push_channel":{"harmony":{"notification":{"title":"t","body":"b","click_type":"none","slot_type":"X"}}}"#
        )
        #expect(text.response?.text.contains("slot_type ") == true)
    }

    @Test("a revoke for the vendors is named as ignored, and the call is served")
    func revoke() throws {
        let action = fixture.push(
            #""push_channel":{"android":{"ups":{"revoke":{"old_task_id":"RASL_1"}}}}"#)
        guard case .push(let pushes, _) = action else {
            Issue.record("refused: \(action.response?.text ?? "")")
            return
        }
        #expect(try #require(pushes.first).content.vendors.isEmpty)
    }

    @Test("a follow-up's content is stored as it is, with its channel and its delay")
    func followUp() throws {
        let content = ##"{"template":"A","n":[1,2.50]}"##
        #expect(try stored(##"{"custom":{"sms":{"content":\##(content),"delay":30}}}"##).contains(content))
        let action = fixture.push(##""push_channel":{"custom":{"voice":{"content":"call"}}}"##)
        guard case .push(let pushes, _) = action else {
            Issue.record("refused: \(action.response?.text ?? "")")
            return
        }
        let push = try #require(pushes.first)
        let shape = try #require(push.content.vendors.first)
        #expect(shape.channel == .voice && shape.activity == 600_000)
    }

    @Test(
        "a follow-up that could not be sent is refused with the reason",
        arguments: [
            (#"{"sms":{"content":{"a":1}},"mail":{"content":{"a":1}}}"#, "", "exactly one of"),
            (#"{"wechat":{"content":{"a":1}}}"#, "", "exactly one of"),
            (#"{"sms":{"delay":9}}"#, "", "custom.sms.content"),
            (#"{"sms":{"content":{"a":1},"at":1}}"#, "", "content and delay only"),
            (#"{"sms":{"content":7}}"#, "", "custom.sms.content"),
            (#"{"sms":{"content":{"a":1},"delay":-1}}"#, "", "delay"),
            (#"{"sms":{"content":{"a":1},"delay":60}}"#, #""settings":{"ttl":60000},"#, "ttl must be longer"),
            (#"{"sms":{"content":{"a":1}}}"#, #""settings":{"ttl":0},"#, "ttl must be longer"),
            (#"{"sms":{"content":{"a":1}}}"#, #""settings":{"strategy":{"default":4}},"#, "strategies 1 and 2"),
            (#"{"sms":{"content":{"a":1}}}"#, #""settings":{"strategy":{"default":1,"hw":3}},"#, "strategies 1 and 2"),
            (#"{"sms":{"content":"\#(String(repeating: "a", count: 2_047))"}}"#, "", "2048"),
        ])
    func refusedFollowUp(custom: String, settings: String, reason: String) {
        let text =
            fixture.push(#"\#(settings)"push_channel":{"custom":\#(custom)}"#).response?.text ?? "accepted"
        #expect(text.contains(#""code":20001"#) && text.contains(reason), "\(text)")
    }

    @Test("options under a name of no vendor are not checked")
    func otherOptions() throws {
        _ = try stored(
            #"{"android":{"ups":{"notification":{"title":"t","body":"b","click_type":"none"},"options":{"ALL":{"channel":"default"}}}}}"#
        )
    }

    @Test("the options of a vendor are bounded in number and length")
    func options() {
        let many = (0...64).map { #""/m\#($0)":1"# }.joined(separator: ",")
        for options in [many, #""/\#(String(repeating: "x", count: 256))":1"#, #""x":1"#] {
            let channel =
                #"{"android":{"ups":{"notification":{"title":"t","body":"b","click_type":"none"},"options":{"HW":{\#(options)}}}}}"#
            let text = fixture.push(#""push_channel":\#(channel)"#).response?.text ?? "accepted"
            #expect(text.contains("ups.options.HW"), "\(text.prefix(200))")
        }
    }
}
