internal import Configuration
internal import Cryptography
internal import JSON
internal import TextForms

/// A request to a vendor's API; the names of headers are in lower case.
package struct FakeCall: Sendable {
    package var method = "POST"
    package var path: String
    package var headers: [String: String]
    package var body: [UInt8]

    package init(path: String, headers: [String: String], body: [UInt8]) {
        (self.path, self.headers, self.body) = (path, headers, body)
    }
}

/// The answer to a call, and its summary for the record.
package struct FakeAnswer: Sendable, Equatable {
    package var status = 200
    package var contentType = "application/json;charset=UTF-8"
    package var headers: [String: String] = [:]
    package var body: [UInt8] = []
    package var vendor: FakeVendor?
    package var isForAccessToken = false
    /// The device tokens of a message whose fields are correct.
    package var tokens: [String] = []
    /// The vendor's code, or empty after success.
    package var code = ""
    /// The field or the rule that the request violates.
    package var reason = ""
    package var isTaken = false
    package var deed = VendorScript.Deed.answer
    package var delayMilliseconds: UInt64 = 0
}

/// The vendors' rules and state, without sockets and clocks.
package struct FakeVendorService {
    typealias Fault = VendorPage.Fault

    /// A violated rule: the status and code of the answer, and the field or the rule.
    struct Refusal: Error {
        var status: Int
        var code: String
        var reason: String
    }

    /// A message in the form that all vendors share.
    struct Message {
        var content: JSON5Node
        var tokens: [String]
        /// Whether the vendor only checks the message.
        var isDry = false
    }

    let accounts: FakeAccounts
    package private(set) var scripts: [FakeVendor: VendorScript]
    private(set) var makers = FakeMakers()
    package private(set) var requestCount = 0
    package private(set) var takenCount = 0
    /// The issued access tokens with their expiry in Unix seconds.
    private var issued: [FakeVendor: [String: Int64]] = [:]
    private var uses: [FakeVendor: [Int: Int]] = [:]
    private var days: [FakeVendor: (number: Int64, count: Int)] = [:]
    private var seconds: [FakeVendor: (number: Int64, count: Int)] = [:]

    package init(_ accounts: FakeAccounts, scripts: [FakeVendor: VendorScript] = [:]) {
        (self.accounts, self.scripts) = (accounts, scripts)
    }

    /// Replaces the scripts, from the next request on.
    package mutating func play(_ scripts: [FakeVendor: VendorScript]) { (self.scripts, uses) = (scripts, [:]) }

    package func phonesPage() -> [UInt8] { makers.page() }

    // MARK: Requests

    /// Answers a call; `now` is in Unix milliseconds of the machine's clock.
    package mutating func answer(_ call: FakeCall, now: Int64) -> FakeAnswer {
        requestCount += 1
        guard let (vendor, isForAccessToken, name) = Self.route(call.path) else {
            return FakeAnswer(status: 404, contentType: "text/plain", body: Array("no such address\n".utf8))
        }
        let now = now + (scripts[vendor]?.clockSeconds ?? 0) * 1_000
        var answer = FakeAnswer()
        (answer.vendor, answer.isForAccessToken) = (vendor, isForAccessToken)
        do throws(Refusal) {
            guard call.method == "POST" else { throw Refusal(status: 405, code: "", reason: "POST only") }
            if isForAccessToken {
                if obey(rule(vendor, nil), &answer) { return answer }
                answer.body = try accessToken(vendor, call, now: now / 1_000)
                return answer
            }
            let message = try read(call, vendor, name, now: now / 1_000)
            answer.tokens = message.tokens
            try take(message, vendor, &answer, now: now)
        } catch {
            (answer.status, answer.code, answer.reason) = (error.status, error.code, error.reason)
            write(error, &answer)
        }
        return answer
    }

    /// Returns the vendor of a path, whether the path is that of access tokens, and the app or device that it names.
    private static func route(_ path: String) -> (FakeVendor, Bool, String)? {
        func name(_ pattern: String) -> String? {
            let (parts, names) = (path.split(separator: "/"), pattern.split(separator: "/"))
            guard !names.isEmpty, parts.count == names.count else { return nil }
            guard zip(parts, names).allSatisfy({ $1 == "*" || $0 == $1 }) else { return nil }
            return zip(parts, names).first { $1 == "*" }.map { String($0.0) } ?? ""
        }
        for (vendor, page) in VendorPage.all {
            if name(page.tokenPath) != nil { return (vendor, true, "") }
            if let found = name(page.sendPath) { return (vendor, false, found) }
        }
        return nil
    }

    static func refusal(_ vendor: FakeVendor, _ fault: Fault, _ reason: String) -> Refusal {
        let found = VendorPage.all[vendor]?.codes[fault]
        return Refusal(status: found?.status ?? 400, code: found?.code ?? "", reason: reason)
    }

    // MARK: Messages

    /// Checks a message's sender and its fields.
    private func read(
        _ call: FakeCall, _ vendor: FakeVendor, _ name: String, now: Int64
    ) throws(Refusal) -> Message {
        guard let page = VendorPage.all[vendor] else { preconditionFailure("each vendor has a page") }
        if vendor == .webPush { return try readPush(call, id: name, now: now) }
        let form = page.isForm ? JSON5Node.form(call.body) : nil
        try authorize(call, vendor, name, form ?? JSON5Node(.null), now: now)
        let type = page.isForm ? "application/x-www-form-urlencoded" : "application/json"
        guard call.headers["content-type"]?.hasPrefix(type) == true else {
            throw Self.refusal(vendor, .field, "Content-Type must be \(type)")
        }
        let content: JSON5Node? =
            switch vendor {
            case .xiaomi: form
            case .oppo: form?.at("message").flatMap { JSON5Node.strict(Array(($0.text ?? "").utf8)) }
            case .meizu: form?.at("messageJson").flatMap { JSON5Node.strict(Array(($0.text ?? "").utf8)) }
            default: JSON5Node.strict(call.body)
            }
        guard let content, content.members != nil else { throw Self.refusal(vendor, .field, "unreadable body") }
        for rule in page.rules {
            guard let code = rule.breach(in: content) else { continue }
            var refusal = Self.refusal(vendor, .field, rule.path)
            refusal.code = code
            throw refusal
        }
        let tokens = (vendor == .meizu ? form?.at("pushIds") : content.at(page.target))?.list ?? []
        if let limit = page.limit {
            let size =
                limit.path.isEmpty
                ? call.body.count - tokens.reduce(0) { $0 + $1.utf8.count }
                : limit.path.reduce(0) { $0 + Self.size(content.at($1), vendor) }
            if size > limit.byteCount { throw Self.refusal(vendor, .tooLarge, "\(size) bytes") }
        }
        return Message(content: content, tokens: tokens, isDry: content.at("validate_only")?.scalar == "true")
    }

    /// Returns a field's size in bytes; Xiaomi's payload is percent-encoded within the form and is decoded first.
    private static func size(_ node: JSON5Node?, _ vendor: FakeVendor) -> Int {
        guard vendor == .xiaomi else { return node?.textByteCount ?? 0 }
        return (node?.text ?? "").utf8.percentDecoded()?.count ?? 0
    }

    private mutating func take(
        _ message: Message, _ vendor: FakeVendor, _ answer: inout FakeAnswer, now: Int64
    ) throws(Refusal) {
        let rule = rule(vendor, message.tokens.first ?? "")
        let isScripted = obey(rule, &answer)
        // A rule of the script replaces the faults that token prefixes stand for.
        let faults = message.tokens.map { rule == nil ? Self.fault(of: $0) : nil }
        if rule == nil { try Self.checkStatus(of: message.tokens.first ?? "", vendor) }
        let isKept = answer.deed == .cut || isScripted && answer.deed == .answer
        if isKept || message.isDry {
            if !isScripted { succeed(vendor, message, faults, Self.newID(), &answer) }
            return
        }
        let good = zip(message.tokens, faults).filter { $1 == nil }.map(\.0)
        if good.isEmpty, let fault = faults.first ?? nil, ![.honor, .meizu].contains(vendor) {
            let detail = [Fault.malformed: "tokenFormatError", .foreign: "noRight"][fault]
            throw Self.refusal(vendor, fault, detail ?? "unregistered token")
        }
        try count(good.count, vendor, now: now / 1_000)
        let id = Self.newID()
        for token in good { show(message, vendor, token, id, at: now) }
        (answer.isTaken, takenCount) = (!good.isEmpty, takenCount + good.count)
        if !isScripted { succeed(vendor, message, faults, id, &answer) }
    }

    /// Returns the fault that a device token's prefix stands for, with the prefixes of the fake Apple.
    private static func fault(of token: String) -> Fault? {
        // The token of `longwire-sender doctor`.
        if token == "longwire-doctor" { return .malformed }
        return [("dead", Fault.unregistered), ("bad0", .malformed), ("bad1", .foreign)].first {
            token.hasPrefix($0.0)
        }?.1
    }

    private static func checkStatus(of token: String, _ vendor: FakeVendor) throws(Refusal) {
        if token.hasPrefix("4290") { throw refusal(vendor, .tooFast, "the token's name") }
        for (status, code) in [(500, "INTERNAL"), (503, "UNAVAILABLE")] where token.hasPrefix("\(status)0") {
            throw Refusal(status: status, code: vendor == .fcm ? code : "", reason: "the token's name")
        }
    }

    /// Counts messages against the script's rate and quota.
    private mutating func count(_ number: Int, _ vendor: FakeVendor, now: Int64) throws(Refusal) {
        let script = scripts[vendor]
        if let limit = script?.requestsPerSecond {
            let used = seconds[vendor].map { $0.number == now ? $0.count : 0 } ?? 0
            guard used < limit else { throw Self.refusal(vendor, .tooFast, "more than \(limit) a second") }
            seconds[vendor] = (now, used + 1)
        }
        // Days begin at midnight in Beijing.
        let day = (now + 8 * 3_600) / 86_400
        let used = days[vendor].map { $0.number == day ? $0.count : 0 } ?? 0
        if let quota = script?.dayQuota, used + number > quota {
            throw Self.refusal(vendor, .quota, "more than \(quota) a day")
        }
        days[vendor] = (day, used + number)
    }

    private mutating func show(_ message: Message, _ vendor: FakeVendor, _ token: String, _ id: String, at time: Int64)
    {
        guard let page = VendorPage.all[vendor] else { return }
        func first(_ paths: [String]) -> String {
            let node = paths.lazy.compactMap { message.content.at($0) }.first
            return node?.scalar ?? node?.json ?? ""
        }
        var data = first(page.data)
        if vendor == .xiaomi {
            data = data.utf8.percentDecoded().map { String(decoding: $0, as: UTF8.self) } ?? data
        }
        let shown = FakeMakers.Shown(id: id, at: time, title: first(page.titles), text: first(page.texts), data: data)
        makers.show(shown, vendor, token)
    }

    static func newID() -> String { SecureRandom.bytes(12).hexDigits }

    // MARK: Script

    private mutating func rule(_ vendor: FakeVendor, _ token: String?) -> VendorScript.Rule? {
        for (index, rule) in (scripts[vendor]?.rules ?? []).enumerated()
        where rule.isForAccessTokens == (token == nil) && (token ?? "").hasPrefix(rule.prefix) {
            let used = uses[vendor]?[index] ?? 0
            if let times = rule.times, used >= times { continue }
            uses[vendor, default: [:]][index] = used + 1
            return rule
        }
        return nil
    }

    /// Applies a rule; returns whether it determines the answer.
    private func obey(_ rule: VendorScript.Rule?, _ answer: inout FakeAnswer) -> Bool {
        guard let rule else { return false }
        (answer.deed, answer.delayMilliseconds) = (rule.deed, rule.delayMilliseconds)
        guard !rule.isSuccess else { return false }
        (answer.status, answer.code, answer.reason) = (rule.status, rule.code ?? "", "the script")
        write(Refusal(status: rule.status, code: rule.code ?? "", reason: "scripted"), &answer)
        if let body = rule.body { (answer.body, answer.contentType) = (Array(body.utf8), "text/html") }
        answer.headers["Retry-After"] = rule.retryAfterSeconds.map { "\($0)" }
        return true
    }

    // MARK: Access tokens

    /// Returns the answer's body with a new access token.
    mutating func issue(_ vendor: FakeVendor, now: Int64) -> (text: String, seconds: Int64) {
        let lifetime = scripts[vendor]?.accessTokenSeconds ?? VendorPage.all[vendor]?.accessTokenSeconds ?? 3_600
        var all = issued[vendor, default: [:]].filter { $0.value > now - 3_600 }
        if all.count >= 1_000 { all = [:] }
        let text = "fake-" + SecureRandom.bytes(24).hexDigits
        all[text] = now + lifetime
        issued[vendor] = all
        return (text, lifetime)
    }

    func checkAccess(_ vendor: FakeVendor, _ token: String?, now: Int64) throws(Refusal) {
        guard let end = issued[vendor]?[token ?? ""] else {
            throw Self.refusal(vendor, .access, "unknown access token")
        }
        guard end > now else { throw Self.refusal(vendor, .expired, "expired access token") }
    }
}
