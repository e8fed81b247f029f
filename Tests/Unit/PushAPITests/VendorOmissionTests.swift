import Delivery
import Testing
import Wire

@testable import PushAPI

@Suite("Omissions of APNs bodies")
struct VendorOmissionTests {
    private static let alert = #"{"aps":{"alert":{"title":"T","body":"B"}}}"#
    private static let notification = #"{"notification":{"title":"T","body":"B","click_type":"none"}}"#
    private static let long = #"{"transmission":"\#(String(repeating: "t", count: 3_000))"}"#
    private static let longAlert = #"{"aps":{"alert":"\#(String(repeating: "a", count: 1_500))"}}"#

    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var template = APNsTemplate()
        var ios: String? = VendorOmissionTests.alert
        var message = #"{"transmission":"{\"a\":1}"}"#
        /// A part of the refusal's text; `nil` if the body contains everything.
        var reason: String?
        var testDescription: String { name }

        init(
            _ name: String, ios: String? = VendorOmissionTests.alert, message: String? = nil, reason: String? = nil,
            _ change: (inout APNsTemplate) -> Void = { _ in }
        ) {
            (self.name, self.ios, self.reason) = (name, ios, reason)
            if let message { self.message = message }
            change(&template)
        }

        func push(_ strategy: String, in path: String = "push/single/cid", ttl: Int64 = 60_000) -> (Fixture, String) {
            let channel = ios.map { #","push_channel":{"ios":\#($0)}"# } ?? ""
            let settings = #""settings":{"strategy":\#(strategy),"ttl":\#(ttl)}"#
            let audience =
                path == "push/all"
                ? #""audience":"all","# : path == "push/single/cid" ? #""audience":{"cid":["\#(Fixture.cid)"]},"# : ""
            let body = #"{"request_id":"request-0001",\#(audience)\#(settings),"push_message":\#(message)\#(channel)}"#
            return (Fixture(template: template), body)
        }
    }

    static let cases: [Case] = [
        Case("transmission as payload"),
        Case("same payload", ios: #"{"aps":{"alert":"hi"},"payload":"{\"a\":1}"}"#),
        Case("members") { $0.transmission = .members },
        Case("silent push", ios: #"{"aps":{"content-available":1}}"#),
        Case("wake", ios: nil) { $0.wakesApp = true },
        Case("none, but the same payload", ios: #"{"aps":{"alert":"hi"},"payload":"{\"a\":1}"}"#) {
            $0.transmission = .none
        },
        Case("notification", ios: nil, message: notification) { $0.showsNotifications = true },
        Case("notification of one's own alert", message: notification),
        Case(
            "Android's looks",
            message: #"{"notification":{"title":"T","body":"B","click_type":"startapp","logo":"l","channel_level":3}}"#),
        Case("too large", ios: longAlert, message: long, reason: "too large"),
        Case("other payload", ios: #"{"aps":{"alert":"hi"},"payload":"own"}"#, reason: "payload differs"),
        Case("template none", reason: "template") { $0.transmission = .none },
        Case("wake without it", ios: nil, reason: "template") { ($0.wakesApp, $0.transmission) = (true, .none) },
        Case("a taken member", ios: #"{"aps":{"alert":"hi"},"a":2}"#, reason: "member") { $0.transmission = .members },
        Case("a reserved member", message: #"{"transmission":"{\"aps\":1}"}"#, reason: "member") {
            $0.transmission = .members
        },
        Case("other alert", ios: #"{"aps":{"alert":"hi"}}"#, message: notification, reason: "notification"),
        Case(
            "a notification's data",
            message: #"{"notification":{"title":"T","body":"B","click_type":"payload","payload":"p"}}"#,
            reason: "notification"),
        Case("wake for a notification", ios: nil, message: notification, reason: "notification") { $0.wakesApp = true },
    ]

    @Test("a message has a flag for vendor content with everything in it", arguments: cases)
    func carriesAll(_ one: Case) throws {
        for strategy in [#"{"default":1}"#, #"{"ios":4}"#] {
            let (fixture, body) = one.push(strategy)
            guard case .push(let pushes, _) = fixture.call(.post, "/v2/demoApp/push/single/cid", body) else {
                Issue.record("refused")
                return
            }
            #expect(pushes.first?.seen.command.vendorCarriesAll == (one.reason == nil))
        }
    }

    @Test("a message that only APNs would deliver, and not completely, is refused with the reason", arguments: cases)
    func refused(_ one: Case) {
        let ways: [(String, Int64)] = [
            (#"{"default":2}"#, 60_000), (#"{"default":4}"#, 0), (#"{"default":1,"ios":4}"#, -1),
        ]
        for path in ["push/single/cid", "push/all", "push/list/message"] {
            for (strategy, ttl) in ways {
                let (fixture, body) = one.push(strategy, in: path, ttl: ttl)
                let action = fixture.call(.post, "/v2/demoApp/\(path)", body)
                guard let reason = one.reason else {
                    #expect(action.response == nil, "\(path): \(action.text)")
                    continue
                }
                for part in [#""code":20001"#, "strategy is invalid", reason] {
                    #expect(action.text.contains(part), "\(path): \(action.text)")
                }
            }
        }
    }

    @Test("a Live Activity push is for its state, so strategy 2 is not refused")
    func liveActivity() throws {
        let ios = #"{"type":"liveactivity","laId":"la","aps":{"event":"update","content-state":{"a":1},"timestamp":1}}"#
        let (fixture, body) = Case("activity", ios: ios).push(#"{"default":2}"#)
        guard case .push(let pushes, _) = fixture.call(.post, "/v2/demoApp/push/single/cid", body) else {
            Issue.record("refused")
            return
        }
        #expect(pushes.first?.seen.command.vendorCarriesAll == false)
    }

    @Test("a revoke is sent live, whatever strategy it names")
    func revoke() {
        let message = #"{"revoke":{"old_task_id":"RASS_1114_4f7a75667d40e8a594c49d96"}}"#
        let (fixture, body) = Case("revoke", message: message).push(#"{"default":2}"#)
        #expect(fixture.call(.post, "/v2/demoApp/push/single/cid", body).response == nil)
    }
}
