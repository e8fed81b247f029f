import Quotas
import Cryptography
import Delivery
import Testing
import Wire

@testable import PushAPI

/// A demo app, its API and the requests of a correct SDK.
struct Fixture {
    static let now: GatewayTime = 1_700_000_000_000
    static let cid = DeviceID("0123456789abcdef0123456789abcdef")!
    static let otherCID = DeviceID("fedcba9876543210fedcba9876543210")!

    private(set) var app: App
    let api: PublicAPI

    init(
        masterSecrets: [String] = ["demoSecret"], template: APNsTemplate = APNsTemplate(),
        transmissionCharacters: Int = Limits.transmissionCharacterCount
    ) {
        app = App(
            appID: "demoApp", appKey: "demoKey", appSecrets: ["demoAppSecret"], masterSecrets: masterSecrets,
            apnsTopic: "com.example.demo")
        (app.apnsTemplate, app.transmissionCharacterCount) = (template, transmissionCharacters)
        (app.takesUpstream, app.hasEvents) = (true, true)
        let other = App(appID: "otherApp", appKey: "otherKey", appSecrets: ["a"], masterSecrets: ["b"])
        var counter: UInt64 = 0
        let random = RandomWords {
            counter += 1
            return counter &* 0x9E37_79B9_7F4A_7C15
        }
        api = PublicAPI(
            registry: AppRegistry([app, other]),
            tokens: TokenAuthority(key: [UInt8](repeating: 7, count: 32)), random: random)
    }

    var token: String {
        api.tokens.issue(for: app.key, expiresAt: Self.now + Limits.tokenLifetime, random: 99)
    }

    func call(
        _ method: APIRequest.Method, _ target: String, _ body: String = "", token: String? = nil,
        now: GatewayTime = Fixture.now
    ) -> PublicAction {
        call(method, Array(target.utf8), Array(body.utf8), token: Array((token ?? self.token).utf8), now: now)
    }

    func call(
        _ method: APIRequest.Method, _ target: [UInt8], _ body: [UInt8], token: [UInt8]?, now: GatewayTime = Fixture.now
    ) -> PublicAction {
        let action = parsed(method, target, body, token: token, now: now)
        // The caller asks the limits on broadcasts and lists after a look at the request id.
        guard case .campaign(let call) = action, let refusal = api.refusal(of: call, now: now) else { return action }
        return .respond(refusal)
    }

    func parsed(
        _ method: APIRequest.Method, _ target: [UInt8], _ body: [UInt8], token: [UInt8]?, now: GatewayTime
    ) -> PublicAction {
        target.withUnsafeBytes { target in
            body.withUnsafeBytes { body in
                guard let token else {
                    return api.handle(APIRequest(method: method, target: target, body: body), now: now)
                }
                return token.withUnsafeBytes { token in
                    api.handle(APIRequest(method: method, target: target, token: token, body: body), now: now)
                }
            }
        }
    }

    /// Sends a single push whose body has the given fields and the missing required ones.
    func push(
        _ fields: String = "", message: String = #"{"transmission":"hello"}"#, requestID: String = #""req-000001""#,
        audience: String = #"{"cid":["0123456789abcdef0123456789abcdef"]}"#
    ) -> PublicAction {
        let body =
            #"{"request_id":\#(requestID),"audience":\#(audience),"push_message":\#(message)"#
            + (fields.isEmpty ? "" : "," + fields) + "}"
        return call(.post, "/v2/demoApp/push/single/cid", body)
    }

    func accepted(_ action: PublicAction, _ location: SourceLocation = #_sourceLocation) throws -> ParsedPush {
        if case .push(let pushes, _) = action { return try #require(pushes.first, sourceLocation: location) }
        Issue.record("not accepted: \(action.text)", sourceLocation: location)
        throw Refused()
    }

    struct Refused: Error {}
}

extension PublicAction {
    var response: APIResponse? {
        switch self {
        case .respond(let response), .token(let response): response
        default: nil
        }
    }

    var text: String { response?.text ?? "\(self)" }
}

extension APIResponse {
    var text: String { String(decoding: body, as: UTF8.self) }
}

/// A copy of the command that a shard would receive.
struct Seen {
    var command: PublishCommand
    var payload: String
    var collapseKey: String
    var alertTitle: String
    var alertBody: String
    var vendorBody: String?
    var vendorBytes: [UInt8] = []
    var vendorCollapseID: String
    /// A property of a native publish.
    var isIDsOnly = false

    init(_ command: PublishCommand) {
        self.command = command
        payload = String(decoding: command.payload, as: UTF8.self)
        collapseKey = String(decoding: command.collapseKey, as: UTF8.self)
        alertTitle = String(decoding: command.alertTitle, as: UTF8.self)
        alertBody = String(decoding: command.alertBody, as: UTF8.self)
        vendorBody = command.vendor.map { String(decoding: $0.body, as: UTF8.self) }
        vendorBytes = command.vendor.map { Array($0.body) } ?? []
        vendorCollapseID = command.vendor.map { String(decoding: $0.collapseID, as: UTF8.self) } ?? ""
    }

    /// Returns the body as a lease would render it.
    func leased(message: MessageID, badge: Int) -> String {
        guard let vendor = command.vendor else { return "" }
        var bytes = vendorBytes
        if vendor.messageIDOffset >= 0 {
            let start = Int(vendor.messageIDOffset)
            bytes.replaceSubrange(start..<start + 32, with: message.description.utf8)
        }
        if vendor.badgeOffset >= 0 { bytes.insert(contentsOf: String(badge).utf8, at: Int(vendor.badgeOffset)) }
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension ParsedPush {
    var seen: Seen { withCommand(origin: .none) { Seen($0) } }
}

/// Defaults for the requirements that most tests do not use.
extension RateLimiting {
    func isSpent(_ kind: RateKind, app: AppKey, limits: RateLimits, now: GatewayTime) -> Bool { false }
    func takeReceipt(from network: UInt64, app: AppKey, limit: Int, now: GatewayTime) -> Bool { true }
}
