internal import APNs
internal import Configuration
internal import EventLoops
internal import JSON
internal import TextForms

/// The HTTP endpoints `/v1/channels` and `/v1/broadcasts` on the admin listener.
enum ChannelEndpoint {
    /// Checks a caller's token before its body is buffered.
    static func judge(_ head: HTTPRequestHead, tokens: [Secret]) -> HTTPPrecheck {
        let target = String(decoding: head.target, as: UTF8.self)
        let path = String(target.prefix { $0 != "?" })
        guard path == "/v1/channels" || path == "/v1/broadcasts" else {
            return .take(byteLimit: 0, isProven: false)
        }
        guard !tokens.isEmpty else {
            return .refuse(HTTPReply(status: 403, contentType: jsonType, body: closed))
        }
        let given = head.header("authorization").map { Array($0) } ?? []
        guard isKnown(given, tokens) else {
            return .refuse(HTTPReply(status: 401, contentType: jsonType, headers: [asksForBearer], body: unauthorized))
        }
        return .take(byteLimit: SenderListeners.adminBodyByteLimit, isProven: true)
    }

    private static let jsonType = "application/json"
    private static let asksForBearer = (name: "WWW-Authenticate", value: "Bearer")
    private static let closed = ChannelReport.error("forbidden", "closed: give admin.tokenFile in the configuration")
    private static let unauthorized = ChannelReport.error(
        "unauthorized", "Authorization: Bearer with a token of admin.tokenFile is missing")

    private static func isKnown(_ given: [UInt8], _ tokens: [Secret]) -> Bool {
        tokens.contains { HookIntake.isEqual(Array("Bearer \($0.exposed)".utf8), given) }
    }

    /// Handles a request for one of these paths.
    ///
    /// Returns false for any other path. `tokens` are the accepted bearer tokens. Without tokens the paths answer 403.
    static func handle(_ exchange: HTTPExchange, _ channels: ChannelCalls, tokens: [Secret]) -> Bool {
        let target = exchange.rawTarget
        let path = String(target.prefix { $0 != "?" })
        guard path == "/v1/channels" || path == "/v1/broadcasts" else { return false }
        guard !tokens.isEmpty else {
            exchange.respond(status: 403, body: closed)
            return true
        }
        let given = Array((exchange.header("authorization") ?? "").utf8)
        guard isKnown(given, tokens) else {
            exchange.respond(status: 401, headers: [asksForBearer], body: unauthorized)
            return true
        }
        let wanted: ChannelOrder
        do throws(ChannelOrder.Fault) {
            switch (exchange.method, path) {
            case (.post, "/v1/broadcasts"): wanted = try ChannelOrder(broadcast: Array(exchange.body))
            case (.post, _): wanted = try ChannelOrder(creation: Array(exchange.body))
            case (.get, "/v1/channels"), (.head, "/v1/channels"):
                wanted = try ChannelOrder(query: target.dropFirst(path.count + 1), deletes: false)
            case (.delete, "/v1/channels"):
                wanted = try ChannelOrder(query: target.dropFirst(path.count + 1), deletes: true)
            default:
                let allow = path == "/v1/channels" ? "GET, HEAD, POST, DELETE" : "POST"
                exchange.respond(
                    status: 405, headers: [("Allow", allow)],
                    body: ChannelReport.error("methodNotAllowed", "POST, and for channels GET and DELETE"))
                return true
            }
        } catch {
            refuse(exchange, 400, "invalidParameter", error.text)
            return true
        }
        channels.perform(wanted.request, appID: wanted.appID, wanted.environment, facts: wanted.facts) { outcome in
            answer(exchange, wanted.request, outcome)
        }
        return true
    }

    private static func answer(_ exchange: HTTPExchange, _ request: ChannelRequest, _ outcome: ChannelOutcome) {
        let report = ChannelReport(request, outcome)
        let headers = report.retryAfter.map { [(name: "Retry-After", value: "\($0)")] } ?? []
        exchange.respond(status: report.status, headers: headers, body: report.body)
    }

    private static func refuse(_ exchange: HTTPExchange, _ status: Int, _ code: String, _ message: String) {
        exchange.respond(status: status, body: ChannelReport.error(code, message))
    }
}

struct ChannelOrder {
    struct Fault: Error, Equatable {
        var text: String
    }

    var appID = ""
    var environment: Environment
    var request: ChannelRequest
    var facts = BodyFacts()

    init(broadcast bytes: [UInt8]) throws(Fault) {
        let known: [StaticString] = [
            "topic", "environment", "appId", "channelId", "expiration", "priority", "body",
        ]
        let fields = try Fields(bytes, known: known)
        guard let body = fields.value["body"] else { throw Fault(text: "body is missing") }
        var writer = JSONWriter(capacity: 1_024)
        writer.value(body)
        (appID, environment) = (try fields.text("appId") ?? "", try fields.environment())
        facts = BodyFacts(body, isActivity: true)
        request = ChannelRequest(
            topic: try fields.text("topic") ?? "",
            call: .broadcast(
                Broadcast(
                    channelID: try fields.text("channelId") ?? "", expiration: try fields.integer("expiration") ?? 0,
                    priority: Int(clamping: try fields.integer("priority") ?? 10), body: writer.bytes)))
    }

    init(creation bytes: [UInt8]) throws(Fault) {
        let fields = try Fields(bytes, known: ["topic", "environment", "appId", "storage"])
        guard let storage = ChannelStorage(name: try fields.text("storage") ?? "none") else {
            throw Fault(text: "storage is \"none\" or \"last\"")
        }
        (appID, environment) = (try fields.text("appId") ?? "", try fields.environment())
        request = ChannelRequest(topic: try fields.text("topic") ?? "", call: .create(storage))
    }

    /// Reads a query: `topic`, `environment`, `appId`, `channelId`; without `channelId` all channels are listed.
    init(query: some StringProtocol, deletes: Bool) throws(Fault) {
        var found: [String: String] = [:]
        for part in query.split(separator: "&") {
            let pair = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard pair.count == 2, let value = Self.decoded(pair[1]) else {
                throw Fault(text: "the query is NAME=VALUE, in percent-encoding")
            }
            guard ["topic", "environment", "appId", "channelId"].contains(pair[0]) else {
                throw Fault(text: "\(pair[0].prefix(64)) is unknown here")
            }
            found[String(pair[0])] = value
        }
        guard let environment = Environment(rawValue: found["environment"] ?? "production") else {
            throw Fault(text: "environment is production or sandbox")
        }
        (self.environment, appID) = (environment, found["appId"] ?? "")
        let channel = found["channelId"]
        if deletes, channel == nil { throw Fault(text: "channelId is missing") }
        let call: ChannelRequest.Call = deletes ? .delete(channel ?? "") : channel.map { .read($0) } ?? .list
        request = ChannelRequest(topic: found["topic"] ?? "", call: call)
    }

    init(appID: String, _ environment: Environment, _ request: ChannelRequest, facts: BodyFacts = BodyFacts()) {
        (self.appID, self.environment, self.request, self.facts) = (appID, environment, request, facts)
    }

    private static func decoded(_ text: some StringProtocol) -> String? {
        text.utf8.percentDecoded().map { String(decoding: $0, as: UTF8.self) }
    }

    private struct Fields {
        // Retained because `value` points into the parser's document.
        private let parser = JSONParser()
        let value: JSONValue

        init(_ bytes: [UInt8], known: [StaticString]) throws(Fault) {
            let parser = parser
            let result: Result<JSONValue, JSONError> = bytes.withUnsafeBytes { bytes in
                do throws(JSONError) { return .success(try parser.parse(bytes)) } catch { return .failure(error) }
            }
            guard case .success(let value) = result, value.kind == .object else {
                throw Fault(text: "the body is no JSON object")
            }
            self.value = value
            for (key, _) in value.members where !known.contains(where: { key.equals($0) }) {
                throw Fault(text: "\(key.string?.prefix(64) ?? "") is unknown here")
            }
        }

        func text(_ name: StaticString) throws(Fault) -> String? {
            guard let value = value[name] else { return nil }
            guard let text = value.string else { throw Fault(text: "\(name) is a string") }
            return text
        }

        func integer(_ name: StaticString) throws(Fault) -> Int64? {
            guard let value = value[name] else { return nil }
            guard let number = value.integer else { throw Fault(text: "\(name) is an integer") }
            return number
        }

        func environment() throws(Fault) -> Environment {
            guard let environment = Environment(rawValue: try text("environment") ?? "production") else {
                throw Fault(text: "environment is production or sandbox")
            }
            return environment
        }
    }
}

struct ChannelReport {
    var status: Int
    var body: [UInt8]
    var retryAfter: Int64?

    init(_ request: ChannelRequest, _ outcome: ChannelOutcome) {
        switch outcome {
        case .unsent(let text): (status, body) = (503, Self.error("unsent", text))
        case .unknown(let text): (status, body) = (504, Self.error("noAnswer", text))
        case .answered(let answer) where answer.answer.status / 100 == 2:
            (status, body) = (answer.answer.status == 201 ? 201 : 200, Self.success(request, answer))
        case .answered(let answer):
            retryAfter = answer.answer.retryAfter
            let reason = Reason(rawValue: answer.answer.reason)
            switch answer.answer.action {
            // The sender's credential is at fault, not the caller's request.
            case .restCredential, .renewProviderToken, .keepProviderToken: status = 502
            case .slowDownToken: status = 429
            case .retry, .reconnect: status = 503
            default: status = 400
            }
            let name = answer.answer.name
            body = Self.error(name, reason.map { "\($0.advice)" } ?? "see Apple's documentation of this reason")
        }
    }

    private static func success(_ request: ChannelRequest, _ answer: ChannelAnswer) -> [UInt8] {
        var members: JSONObject = [:]
        if case .create = request.call { members.add("channelId", answer.channelID) }
        members.add("requestId", answer.requestID.unlessEmpty)
        members.add("uniqueId", answer.uniqueID.unlessEmpty)
        let parser = JSONParser()
        answer.body.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), value.kind == .object else { return }
            switch request.call {
            case .list:
                let list = value["channels"].flatMap { $0.kind == .array ? $0 : nil }
                members.add("channels", list?.elements.map { $0.string ?? "" } ?? [])
            case .read(let id):
                members.add("channelId", id)
                let number = value["message-storage-policy"]?.lenientInteger
                members.add("storage", number.flatMap { ChannelStorage(rawValue: $0)?.name } ?? "unknown")
            case .create, .delete, .broadcast: break
            }
        }
        return members.bytes
    }

    static func error(_ code: String, _ message: String) -> [UInt8] {
        (["error": ["code": code, "message": message] as JSONObject] as JSONObject).bytes
    }
}
