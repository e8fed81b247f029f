internal import APNs
internal import Cryptography
internal import EventLoops
internal import HTTP2
internal import JSON
internal import Platform

enum ChannelOutcome: Equatable {
    case answered(ChannelAnswer)
    /// Apple did not get the request; the text is the reason.
    case unsent(String)
    /// Apple may have processed the request, but sent no complete answer.
    case unknown(String)
}

struct ChannelAnswer: Equatable {
    var answer: Answer
    var channelID = ""
    var requestID = ""
    /// Apple's id of a broadcast.
    var uniqueID = ""
    var body: [UInt8] = []
}

struct ChannelMetrics: Sendable, Equatable {
    enum Result: String, Sendable, CaseIterable { case done, refused, unsent, unknown }
    static let calls = ["create", "read", "delete", "list", "broadcast"]

    /// Requests by call, then by result.
    private(set) var results: [String: [Result: UInt64]] = [:]
    /// Refusals by Apple's reason; the number of distinct reasons is limited.
    private(set) var refusals: [String: UInt64] = [:]

    mutating func note(_ call: ChannelRequest.Call, _ outcome: ChannelOutcome) {
        let name =
            switch call {
            case .create: "create"
            case .read: "read"
            case .delete: "delete"
            case .list: "list"
            case .broadcast: "broadcast"
            }
        let result: Result
        switch outcome {
        case .unsent: result = .unsent
        case .unknown: result = .unknown
        case .answered(let answer) where answer.answer.status / 100 == 2: result = .done
        case .answered(let answer):
            result = .refused
            let reason = answer.answer.name
            refusals[refusals[reason] != nil || refusals.count < 64 ? reason : "other", default: 0] += 1
        }
        results[name, default: [:]][result, default: 0] += 1
    }
}

/// The client for Apple's channel and broadcast requests, for the app's server and the operator, at a few requests a second.
///
/// These requests are not jobs of the gateway. Confined to the sender's loop.
final class ChannelCalls {
    struct Limits: Sendable {
        /// The maximum number of pending requests of all credentials.
        var calls = 1_000
        var callMilliseconds: UInt64 = 15_000
        var idleMilliseconds: UInt64 = 60_000
    }

    private unowned let sender: AppleSender
    private let endpoints: [Environment: Lane.Endpoint]
    let limits: Limits
    private var services: [String: ChannelService] = [:]
    private(set) var callCount = 0 {
        didSet { onCount(callCount) }
    }
    /// A callback for each change of the number of pending requests.
    var onCount: (Int) -> Void = { _ in }
    private(set) var metrics = ChannelMetrics()

    /// `endpoints` are those of channel management; broadcasts use the sender's endpoints.
    init(of sender: AppleSender, endpoints: [Environment: Lane.Endpoint], limits: Limits = Limits()) {
        (self.sender, self.endpoints, self.limits) = (sender, endpoints, limits)
        sender.loop.onTick { [unowned self] now in
            for service in services.values { service.tick(now) }
            services = services.filter { !$0.value.isIdle }
        }
    }

    /// Sends a request with the credential of an app; `done` is called once, on the loop.
    func perform(
        _ request: ChannelRequest, appID: String, _ environment: Environment, facts: BodyFacts = BodyFacts(),
        done: @escaping (ChannelOutcome) -> Void
    ) {
        let done = { [weak self] (outcome: ChannelOutcome) in
            self?.metrics.note(request.call, outcome)
            done(outcome)
        }
        guard !sender.isStopping else { return done(.unsent("the sender stops; send it again later")) }
        if let breach = request.breach(facts) {
            let answer = Answer(status: 400, reason: "\(breach.reason)")
            return done(.answered(ChannelAnswer(answer: answer, body: Array("\(breach.advice)".utf8))))
        }
        guard let credential = sender.credential(of: appID, environment) else {
            return done(.unsent("no credential is configured for the app in this environment"))
        }
        let endpoint = request.isManagement ? endpoints[environment] : sender.endpoint(of: environment)
        guard let endpoint else { return done(.unsent("no address is configured for this environment")) }
        guard callCount < limits.calls else { return done(.unsent("too many requests wait; send it again later")) }
        callCount += 1
        let key = "\(ObjectIdentifier(credential)) \(endpoint.authority)"
        let service = services[key] ?? ChannelService(credential, at: endpoint, of: sender, limits: limits)
        services[key] = service
        service.add(
            ChannelCall(request, until: sender.loop.now + limits.callMilliseconds) { [weak self] outcome in
                self?.callCount -= 1
                done(outcome)
            })
    }

    /// Closes the connections; requests in flight get no answer.
    func close() { for service in services.values { service.close("the sender stops") } }
}

private final class ChannelCall: HTTP2Stream {
    /// Enough for a list of 10,000 channels, Apple's limit, with ids of the maximum length.
    private static let answerByteLimit = 6 << 20

    let request: ChannelRequest
    let until: UInt64
    private var done: ((ChannelOutcome) -> Void)?
    private var answer = ChannelAnswer(answer: Answer(status: 0))

    init(_ request: ChannelRequest, until: UInt64, done: @escaping (ChannelOutcome) -> Void) {
        (self.request, self.until, self.done) = (request, until, done)
        super.init()
        body = request.body
    }

    var isOver: Bool { done == nil }

    func finish(_ outcome: ChannelOutcome) { done.take()?(outcome) }

    override func received(header name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        let text = String(decoding: value.prefix(ChannelRequest.channelIDByteCount), as: UTF8.self)
        switch String(decoding: name, as: UTF8.self) {
        case ":status": answer.answer.status = Int(text) ?? 0
        case "apns-channel-id": answer.channelID = text
        case "apns-request-id": answer.requestID = text
        case "apns-unique-id": answer.uniqueID = text
        case "retry-after": answer.answer.retryAfter = Int64(text).map { min(max(0, $0), 86_400) }
        default: break
        }
    }

    override func received(body bytes: UnsafeBufferPointer<UInt8>) {
        if answer.body.count + bytes.count <= Self.answerByteLimit { answer.body += bytes }
    }

    /// The time when the request's provider token was signed, in Unix seconds, or 0.
    var tokenIssuedAt: Int64 = 0
    /// A callback for Apple's answer, called before `done`.
    var answered: (Answer) -> Void = { _ in }

    override func receivedEnd() {
        if answer.answer.status / 100 != 2 {
            let parser = JSONParser()
            answer.body.withUnsafeBytes { bytes in
                answer.answer.reason = String(((try? parser.parse(bytes))?["reason"]?.string ?? "").prefix(64))
            }
        }
        answered(answer.answer)
        finish(.answered(answer))
    }

    override func closed(_ code: UInt32) {
        finish(
            code == HTTP2Code.refusedStream
                ? .unsent("Apple did not process the request; send it again") : .unknown("Apple gave no answer"))
    }
}

private final class ChannelConnection: HTTP2Connection {
    private weak var service: ChannelService?
    private(set) var hasSettings = false
    var isLeaving = false

    init(of service: ChannelService) {
        self.service = service
        super.init()
    }

    var takesRequests: Bool {
        hasSettings && !isLeaving && session?.takesRequests == true
            && (session?.streamCount ?? 0) < (session?.peerConcurrentStreams ?? 0)
    }

    override func settingsChanged() {
        hasSettings = true
        service?.dispatch()
    }
    override func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) { isLeaving = true }
    override func ended(_ reason: String) { service?.ended(self, reason) }
}

/// The requests and connections of one credential to one of Apple's hosts.
private final class ChannelService {
    private let credential: Credential
    private let endpoint: Lane.Endpoint
    private unowned let sender: AppleSender
    private let limits: ChannelCalls.Limits
    private var waiting: [ChannelCall] = []
    private var sent: [ChannelCall] = []
    private var connection: ChannelConnection?
    private var left: [ChannelConnection] = []
    private var addresses: [RemoteAddress] = []
    private var isResolving = false
    /// The number of consecutive connections that brought no SETTINGS.
    private var failures = 0
    private var usedAt: UInt64

    init(_ credential: Credential, at endpoint: Lane.Endpoint, of sender: AppleSender, limits: ChannelCalls.Limits) {
        (self.credential, self.endpoint, self.sender, self.limits) = (credential, endpoint, sender, limits)
        usedAt = sender.loop.now
    }

    var isIdle: Bool {
        connection == nil && left.isEmpty && waiting.isEmpty && sent.isEmpty && !isResolving && sender.loop.now > usedAt
    }

    func add(_ call: ChannelCall) {
        usedAt = sender.loop.now
        waiting.append(call)
        dispatch()
    }

    func dispatch() {
        guard !waiting.isEmpty else { return }
        guard let connection else { return open() }
        while let call = waiting.first, connection.takesRequests {
            guard let headers = headers(of: call) else { continue }
            call.tokenIssuedAt = credential.tokens?.issuedAt ?? 0
            call.answered = { [weak self, unowned call] answer in self?.heed(answer, call) }
            guard connection.session?.request(headers, call) == true else { break }
            waiting.removeFirst()
            sent.append(call)
        }
        connection.flush()
    }

    /// Returns a request's headers, or `nil` without a provider token; all waiting requests have failed then.
    private func headers(of call: ChannelCall) -> HTTP2Headers? {
        let bearer: String?
        switch credential.token(now: sender.wallMilliseconds / 1_000) {
        case .none: bearer = nil
        case .bearer(let text): bearer = text
        case .resting:
            fail("Apple refuses the provider token; \(Reason.expiredProviderToken.advice)")
            return nil
        case .failed:
            fail("the provider token cannot be signed")
            return nil
        }
        let request = call.request
        var headers = HTTP2Headers()
        headers.add(":method", request.method)
        headers.add(":scheme", "https")
        headers.add(":path", request.path)
        headers.add(":authority", endpoint.authority)
        if let bearer { headers.add("authorization", bearer) }
        if let id = request.channelID { headers.add("apns-channel-id", id) }
        if case .broadcast(let broadcast) = request.call {
            headers.add("apns-push-type", PushType.liveactivity.rawValue)
            headers.add("apns-priority", "\(broadcast.priority)")
            headers.add("apns-expiration", "\(broadcast.expiration)")
        }
        if !request.body.isEmpty { headers.add("content-type", "application/json") }
        return headers
    }

    /// Applies an answer about the provider token to all users of the key.
    private func heed(_ answer: Answer, _ call: ChannelCall) {
        guard answer.status / 100 != 2 else { return }
        switch answer.action {
        case .renewProviderToken: credential.tokens?.refused(issuedAt: call.tokenIssuedAt)
        case .keepProviderToken: credential.tokens?.tooManyUpdates(now: sender.wallMilliseconds / 1_000)
        case .accept, .reject, .voidToken, .tryOtherEnvironment, .retry, .slowDownToken, .restCredential, .reconnect:
            break
        }
    }

    private func open() {
        guard !isResolving else { return }
        guard let address = addresses.popLast() else {
            isResolving = true
            return sender.resolve(endpoint.hop) { [weak self] result in
                guard let self else { return }
                isResolving = false
                switch result {
                case .success(let found) where !found.isEmpty:
                    addresses = found.reversed()
                    dispatch()
                case .success: fail(endpoint.named("\(endpoint.hop.host) has no address"))
                case .failure(let failure): fail(endpoint.named(failure.description))
                }
            }
        }
        let connection = ChannelConnection(of: self)
        self.connection = connection
        do {
            try connection.connect(
                try DetachedConnection(connectingTo: address), on: sender.loop, tls: credential.tls,
                serverName: endpoint.host, through: endpoint.tunnel)
        } catch {
            self.connection = nil
            fail("\(endpoint.authority): \(endpoint.named("\(error)"))")
        }
    }

    func ended(_ connection: ChannelConnection, _ reason: String) {
        left.removeAll { $0 === connection }
        guard self.connection === connection else { return }
        self.connection = nil
        sent.removeAll(where: \.isOver)
        failures = connection.hasSettings ? 0 : failures + 1
        // The waiting requests stay queued while another address, or a new connection after a GOAWAY, may accept them.
        if failures > 0, addresses.isEmpty || failures > 3 { fail("\(endpoint.authority): \(endpoint.named(reason))") }
        dispatch()
    }

    private func fail(_ reason: String) {
        failures = 0
        let calls = waiting
        waiting = []
        for call in calls { call.finish(.unsent(reason)) }
    }

    func close(_ reason: String) {
        fail(reason)
        connection?.close()
    }

    func tick(_ now: UInt64) {
        for call in waiting where now >= call.until {
            call.finish(.unsent("\(endpoint.authority) was not reached in time"))
        }
        waiting.removeAll(where: \.isOver)
        for call in sent where !call.isOver && now >= call.until {
            call.finish(.unknown("Apple gave no answer in time"))
            // The connection may be half-open, so the next request uses another connection.
            connection?.isLeaving = true
            connection?.session?.reset(call, HTTP2Code.cancel)
        }
        if sent.contains(where: \.isOver) {
            usedAt = now
            sent.removeAll(where: \.isOver)
        }
        guard let connection else { return dispatch() }
        if connection.isLeaving, sent.isEmpty || !waiting.isEmpty {
            self.connection = nil
            for call in sent { call.finish(.unknown("Apple gave no answer")) }
            sent = []
            left.append(connection)
            connection.close()
        } else if sent.isEmpty, waiting.isEmpty, now >= usedAt + limits.idleMilliseconds {
            connection.closeAfterFlush()
        }
        dispatch()
    }
}
