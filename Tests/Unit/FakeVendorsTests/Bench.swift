import Cryptography
import Testing

@testable import FakeVendors
@testable import Vendors

/// The sender's renderers against the fakes' rules, without sockets.
struct Bench {
    static let now: Int64 = 1_732_900_000
    private static let keys = Result {
        (try RSASigningKey.makePEM(), try SigningKey.makePEM(), try SigningKey.makePEM())
    }

    let accounts: FakeAccounts
    var service: FakeVendorService
    var now = Self.now
    /// The access tokens by vendor, as a sender keeps them.
    var bearers: [Vendor: String] = [:]

    init(_ scripts: [FakeVendor: VendorScript] = [:]) throws {
        let (service, vapid, browser) = try Self.keys.get()
        accounts = try FakeAccounts(service: service, vapid: vapid, browser: browser, port: 2_194)
        self.service = FakeVendorService(accounts, scripts: scripts)
    }

    func api(_ vendor: Vendor, _ changes: [String: String] = [:]) throws -> any VendorAPI {
        var values: [String: [UInt8]] = [:]
        for (name, value) in accounts.settings(of: try #require(FakeVendor(rawValue: vendor.rawValue))) {
            values[name] = Array((changes[name] ?? value).utf8)
        }
        return try VendorCredential.makeAPI(vendor, values: values)
    }

    func message(
        _ vendor: Vendor, _ id: String = "phone-1", _ kind: PushContent.Kind? = nil,
        options: [PushContent.Option] = [], package: String = "com.example.app"
    ) -> VendorMessage {
        VendorMessage(
            token: vendor == .webPush ? accounts.pushToken(id) : id, packageName: package,
            messageID: "0123456789abcdef0123456789abcdef", taskID: "RASS_1129_x",
            content: PushContent(
                kind ?? .notification(PushContent.Notice(title: "Title", body: "Body")), options: options),
            secondsToLive: 3_600)
    }

    mutating func call(_ request: VendorRequest) -> FakeAnswer {
        let path =
            "/"
            + request.url.split(separator: "/", omittingEmptySubsequences: false).dropFirst(3).joined(separator: "/")
        let headers = Dictionary(request.headers.map { ($0.name.lowercased(), $0.value) }) { $1 }
        return service.answer(FakeCall(path: path, headers: headers, body: request.body), now: now * 1_000)
    }

    static func reply(_ answer: FakeAnswer) -> VendorReply {
        VendorReply(
            status: answer.status, retryAfter: answer.headers["Retry-After"] ?? "",
            location: answer.headers["Location"] ?? "", body: answer.body)
    }

    /// Gets an access token, or signs one.
    mutating func bearer(_ api: any VendorAPI, _ message: VendorMessage) throws -> String? {
        switch api.vendor.facts.tokenKind {
        case .none: return nil
        case .signed: return api.signToken(scope: api.tokenScope(of: message), now: now)?.text
        case .exchanged:
            if let kept = bearers[api.vendor] { return kept }
            let answer = call(try #require(api.tokenRequest(now: now)))
            bearers[api.vendor] = try api.readToken(Self.reply(answer), now: now).get().text
            return bearers[api.vendor]
        }
    }

    /// Renders a message, changes the request and sends it.
    mutating func send(
        _ message: VendorMessage, _ vendor: Vendor, through changed: (any VendorAPI)? = nil,
        _ change: (inout VendorRequest) -> Void = { _ in }
    ) throws -> (answer: FakeAnswer, outcome: VendorOutcome) {
        let api = try changed ?? api(vendor)
        let bearer = try bearer(api, message)
        var request = try api.request(for: message, bearer: bearer, now: now)
        change(&request)
        let answer = call(request)
        return (answer, api.outcome(of: Self.reply(answer), token: message.token, now: now))
    }

    var page: String { String(decoding: service.phonesPage(), as: UTF8.self) }
}

extension VendorScript {
    static func with(_ change: (inout VendorScript) -> Void) -> VendorScript {
        var script = VendorScript()
        change(&script)
        return script
    }

    static func rule(_ change: (inout Rule) -> Void) -> VendorScript {
        with { script in
            var rule = Rule()
            change(&rule)
            script.rules = [rule]
        }
    }
}
