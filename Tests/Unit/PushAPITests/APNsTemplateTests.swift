import Delivery
import JSON
import Testing
import Wire

@testable import PushAPI

@Suite("APNs templates")
struct APNsTemplateTests {
    private func fixture(_ change: (inout APNsTemplate) -> Void = { _ in }) -> Fixture {
        var template = APNsTemplate()
        change(&template)
        return Fixture(template: template)
    }

    private func body(
        _ fixture: Fixture, ios: String?, message: String = #"{"transmission":"{\"a\":1,\"_gmid_\":2,\"b\":[\"x\"]}"}"#
    ) throws -> (String, RequestNotes) {
        let action = fixture.push(ios.map { #""push_channel":{"ios":\#($0)}"# } ?? "", message: message)
        guard case .push(let pushes, let form) = action, let push = pushes.first else {
            Issue.record("not accepted: \(action.text)")
            throw Fixture.Refused()
        }
        let text = push.seen.vendorBody ?? "none"
        let end = text.firstRange(of: #","_gmid_":"RASS"#)?.lowerBound ?? text.endIndex
        return (String(text[..<end]), form.notes)
    }

    private static let alert = #"{"aps":{"alert":"hi"}}"#

    @Test("the transmission is sent as payload, as members, or not at all")
    func forms() throws {
        let quoted = #""{\"a\":1,\"_gmid_\":2,\"b\":[\"x\"]}""#
        #expect(try body(fixture(), ios: Self.alert).0 == #"{"aps":{"alert":"hi"},"payload":\#(quoted)"#)
        let members = fixture { $0.transmission = .members }
        #expect(try body(members, ios: Self.alert).0 == #"{"aps":{"alert":"hi"},"a":1,"b":["x"]"#)
        #expect(
            try body(members, ios: Self.alert, message: #"{"transmission":"[1]"}"#).0
                == #"{"aps":{"alert":"hi"},"payload":"[1]""#)
        #expect(try body(fixture { $0.transmission = .none }, ios: Self.alert).0 == #"{"aps":{"alert":"hi"}"#)
    }

    @Test("the publisher's own keys override the transmission")
    func ownPayload() throws {
        #expect(
            try body(fixture(), ios: #"{"aps":{"alert":"hi"},"payload":"own"}"#).0
                == #"{"aps":{"alert":"hi"},"payload":"own""#)
        let members = fixture { $0.transmission = .members }
        #expect(
            try body(members, ios: #"{"aps":{"alert":"hi"},"a":"own"}"#).0
                == #"{"aps":{"alert":"hi"},"a":"own","b":["x"]"#)
    }

    @Test("keys beside aps are sent unchanged, except the gateway's own")
    func topLevel() throws {
        let (text, notes) = try body(
            fixture { $0.transmission = .none },
            ios: #"{"aps":{"alert":"hi"},"jump":{"page":"order","id":7},"url":"app://x","_gmid_":"forged","n":null}"#)
        #expect(text == #"{"aps":{"alert":"hi"},"jump":{"page":"order","id":7},"url":"app://x""#)
        #expect(notes.topLevelKeys == ["push_channel.ios.jump", "push_channel.ios.url"])
        #expect(notes.ignored == ["push_channel.ios._gmid_"])
        let doubled = fixture { $0.transmission = .none }
        #expect(
            try body(doubled, ios: #"{"aps":{"alert":"hi"},"a":1,"a":2,"\u0061":3}"#).0
                == #"{"aps":{"alert":"hi"},"a":1"#, "of equal keys the first counts")
    }

    @Test("keys beside aps are sent with the template's, and named as ignored without a body")
    func topLevelAlone() throws {
        let jump = #"{"jump":{"page":"order"}}"#
        let notification = #"{"notification":{"title":"T","body":"B","click_type":"none"}}"#
        let (nothing, ignored) = try body(fixture(), ios: jump)
        #expect(nothing == "none" && ignored.topLevelKeys.isEmpty && ignored.ignored == ["push_channel.ios.jump"])
        let both = fixture { ($0.showsNotifications, $0.wakesApp, $0.transmission) = (true, true, .members) }
        let (shown, carried) = try body(both, ios: jump, message: notification)
        #expect(
            shown == #"{"aps":{"alert":{"title":"T","body":"B"},"sound":"default"},"jump":{"page":"order"}"#)
        #expect(carried.topLevelKeys == ["push_channel.ios.jump"] && carried.ignored.isEmpty)
        #expect(
            try body(both, ios: jump, message: #"{"transmission":"{\"jump\":1,\"b\":2}"}"#).0
                == #"{"aps":{"content-available":1},"jump":{"page":"order"},"b":2"#)
    }

    @Test("a transmission that does not fit is omitted, and the result reports it")
    func fits() throws {
        let empty = fixture { $0.transmission = .none }
        let action = empty.push(#""push_channel":{"ios":{"aps":{"alert":"hi"},"auto_badge":"+1"}}"#)
        let bare = try empty.accepted(action).seen.vendorBytes.count + Limits.badgeDigitCount
        // Getui's limit of characters would hide the limit of the body.
        let room = Limits.apnsBodyByteCount - bare - #","payload":"""#.utf8.count
        let wide = Fixture(transmissionCharacters: 5_000)
        func push(_ count: Int) throws -> (seen: Seen, notes: RequestNotes) {
            let message = #"{"transmission":"\#(String(repeating: "t", count: count))"}"#
            let action = wide.push(
                #""push_channel":{"ios":{"aps":{"alert":"hi"},"auto_badge":"+1"}}"#, message: message)
            guard case .push(let pushes, let form) = action, let push = pushes.first else { throw Fixture.Refused() }
            return (push.seen, form.notes)
        }
        let (fitting, quiet) = try push(room)
        #expect(fitting.vendorBytes.count == Limits.apnsBodyByteCount - Limits.badgeDigitCount && quiet.idsOnly.isEmpty)
        let (over, said) = try push(room + 1)
        #expect(over.vendorBytes.count == bare - Limits.badgeDigitCount && said.idsOnly == [0])
        #expect(over.payload.utf8.count == room + 1, "the live channel carries it all the same")
        #expect(String(decoding: said.members.bytes, as: UTF8.self) == #"{"idsOnly":[0]}"#)
    }

    @Test("a notification shows its title and body only if the template enables that")
    func notifications() throws {
        let message = #"{"notification":{"title":"T","body":"B","click_type":"none"}}"#
        #expect(try body(fixture(), ios: nil, message: message).0 == "none")
        let shows = fixture {
            $0.showsNotifications = true
            ($0.category, $0.threadID, $0.interruptionLevel) = ("order", "t1", .timeSensitive)
            ($0.alertsAreMutable, $0.badge) = (true, .add(1))
        }
        #expect(
            try body(shows, ios: nil, message: message).0
                == #"{"aps":{"alert":{"title":"T","body":"B"},"sound":"default","category":"order","thread-id":"t1","#
                + #""interruption-level":"time-sensitive","mutable-content":1,"badge":}"#)
        let push = try shows.accepted(shows.push(message: message)).seen
        #expect(push.command.vendor?.badge == .add(1) && push.alertTitle == "T" && push.alertBody == "B")
        #expect(push.leased(message: MessageID(high: 1, low: 2), badge: 12).contains(#""badge":12}"#))
        // The publisher's own values for APNs win.
        #expect(try body(shows, ios: Self.alert, message: message).0 == #"{"aps":{"alert":"hi","mutable-content":1}"#)
    }

    @Test("every alert has mutable-content, unless the publisher sets another value")
    func mutable() throws {
        let mutable = fixture { ($0.alertsAreMutable, $0.transmission) = (true, .none) }
        #expect(try body(mutable, ios: Self.alert).0 == #"{"aps":{"alert":"hi","mutable-content":1}"#)
        #expect(
            try body(mutable, ios: #"{"aps":{"alert":"hi","mutable-content":0}}"#).0
                == #"{"aps":{"alert":"hi","mutable-content":0}"#)
        #expect(try body(mutable, ios: #"{"aps":{"content-available":1}}"#).0 == #"{"aps":{"content-available":1}"#)
    }

    @Test("a push with nothing to show wakes the app if the template enables that")
    func wake() throws {
        let wakes = fixture { $0.wakesApp = true }
        let action = wakes.push(message: #"{"transmission":"t"}"#)
        let seen = try wakes.accepted(action).seen
        #expect(seen.vendorBody?.hasPrefix(#"{"aps":{"content-available":1},"payload":"t","_gmid_""#) == true)
        #expect(seen.command.vendor?.pushType == .background && seen.command.vendor?.priority == 5)
        let revoke = try wakes.accepted(
            wakes.push(message: #"{"revoke":{"old_task_id":"RASS_1114_4f7a75667d40e8a594c49d96"}}"#))
        #expect(revoke.seen.vendorBody == nil, "a revoke travels on the live channel alone")
        #expect(try body(fixture(), ios: nil).0 == "none")
    }

    @Test("a native publish's alert follows the template; a payload that is no text is omitted and reported")
    func native() throws {
        var template = APNsTemplate()
        (template.sound, template.badge) = ("", .set(3))
        var app = Fixture().app
        app.apnsTemplate = template
        let publisher = NativePublisher()
        func seen(_ payload: [UInt8], title: String = "T", apns: String = "") throws -> Seen {
            var pieces = payload + Array(title.utf8)
            pieces += Array(apns.utf8)
            return try pieces.withUnsafeBytes { bytes in
                func piece(_ start: Int, _ count: Int) -> UnsafeRawBufferPointer {
                    UnsafeRawBufferPointer(rebasing: bytes[start..<start + count])
                }
                let none = piece(0, 0)
                let title = piece(payload.count, title.utf8.count)
                let frame = NativePublish(
                    cid: Fixture.cid, payload: piece(0, payload.count), timeToLive: 0, hasTimeToLive: false,
                    strategy: 0, collapseKey: none, requestID: none, alertTitle: title, alertBody: none,
                    apns: piece(bytes.count - apns.utf8.count, apns.utf8.count))
                return try publisher.withCommand(
                    frame, sender: NativeSender(app), origin: .none, now: Fixture.now
                ) { command, isIDsOnly in
                    var seen = Seen(command)
                    seen.isIDsOnly = isIDsOnly
                    return seen
                }
            }
        }
        let text = try seen(Array("héllo".utf8))
        #expect(
            text.vendorBody?.hasPrefix(#"{"aps":{"alert":{"title":"T"},"badge":},"payload":"héllo","_gmid_""#) == true)
        #expect(!text.isIDsOnly && text.command.vendor?.badge == .set(3) && text.command.vendorCarriesAll)
        let binary = try seen([0xFF, 0x00])
        #expect(!binary.command.vendorCarriesAll)
        #expect(binary.isIDsOnly && binary.vendorBody?.contains("payload") == false)
        #expect(try seen([0xFF], apns: Self.alert).isIDsOnly)
        #expect(try seen([1], apns: #"{"jump":7}"#).vendorBody?.contains(#""jump":7,"payload""#) == true)
        #expect(try !seen([0xFF], title: "").isIDsOnly, "there is no body")
        app.apnsTemplate.wakesApp = true
        #expect(
            try seen([1], title: "").vendorBody?.hasPrefix(#"{"aps":{"content-available":1},"payload":"\u0001""#)
                == true)
    }

    @Test("a badge is written in the form of auto_badge")
    func badges() {
        #expect(APNsTemplate.badge("+1") == .add(1) && APNsTemplate.badge("-2") == .add(-2))
        #expect(APNsTemplate.badge("5") == .set(5) && APNsTemplate.badge("") == nil && APNsTemplate.badge("x") == nil)
    }
}
