package import APNs
package import Cryptography
package import EventLoops
internal import FakeVendors
internal import HTTP2
internal import JSON
package import Platform
internal import TextForms

/// A fake of one of Apple's two environments, on one loop.
package final class FakeAPNs {
    let loop: EventLoop
    private(set) var script: FakeScript
    private(set) var phones = FakePhones()
    private var judge: FakeValidator
    private var channels = FakeChannels()
    private var channelRequestCount = 0
    private let tls: TLSContext
    private let parser = JSONParser(depthLimit: JSONParser.standardDepth + HandoffBounds.jobDepth)
    private let record: (([UInt8]) -> Void)?
    private var listener: Listener?
    private var channelListener: Listener?
    private var connections: [ObjectIdentifier: FakeConnection] = [:]
    private var connectionCount = 0
    package var connectionsTaken: Int { connectionCount }
    private var uses: [Int: Int] = [:]
    private var dateText: (time: Int64, text: String) = (-1, "")
    private var delayed = DelayedWork()
    /// The numbers of received and of accepted requests.
    package private(set) var requestCount = 0
    package private(set) var takenCount = 0

    /// Creates a fake without listeners.
    ///
    /// The caller has called `requireHTTP2` on `tls`. Without `keys`, provider tokens are read but not verified. `record` gets
    /// a JSON line for each request, without a line feed.
    package init(
        on loop: EventLoop, environment: Environment, tls: TLSContext, keys: [FakeKey], tokenInterval: Int64 = 0,
        script: FakeScript, record: (([UInt8]) -> Void)?
    ) {
        (self.loop, self.tls, self.script, self.record) = (loop, tls, script, record)
        judge = FakeValidator(environment: environment, keys: keys)
        judge.tokenInterval = tokenInterval
        loop.onTick { [unowned self] now in tick(now) }
    }

    package func listen(_ socket: consuming ListeningSocket) throws(SystemError) {
        listener = try Listener(on: loop, socket: socket) { [unowned self] in accept($0) }
    }

    package func listenForChannels(_ socket: consuming ListeningSocket) throws(SystemError) {
        channelListener = try Listener(on: loop, socket: socket) { [unowned self] in accept($0, isManaged: true) }
    }

    package var address: SocketAddress? { listener?.address }
    package var channelAddress: SocketAddress? { channelListener?.address }

    private func accept(_ detached: DetachedConnection, isManaged: Bool = false) {
        connectionCount += 1
        let connection = FakeConnection(self, number: connectionCount, isManaged: isManaged)
        connections[ObjectIdentifier(connection)] = connection
        var settings = HTTP2Session.Settings()
        settings.concurrentStreams = script.streams
        let isRefused = connectionCount <= script.refusedConnections
        do throws(HTTP2Failure) {
            try connection.accept(detached, on: loop, tls: tls, settings: settings)
            if connectionCount <= script.silentConnections { connection.saysNothing() }
            if connectionCount <= script.deafConnections { connection.readsNothing() }
            if isRefused { connection.refuse(script.refusalReason) }
        } catch {
            connections[ObjectIdentifier(connection)] = nil
        }
    }

    func ended(_ connection: FakeConnection) { connections[ObjectIdentifier(connection)] = nil }

    /// The fake's clock, which the script may shift.
    private var wallMilliseconds: Int64 { Int64(SystemClock.wallMilliseconds) + script.clockSeconds * 1_000 }

    var date: String {
        let now = wallMilliseconds / 1_000
        if dateText.time != now { dateText = (now, HTTPDate.text(secondsSince1970: now)) }
        return dateText.text
    }

    // MARK: Requests

    func handle(_ exchange: FakeExchange, _ connection: FakeConnection) {
        requestCount += 1
        connection.requestCount += 1
        let now = wallMilliseconds
        let request = exchange.request
        if let topic = FakeValidator.channelTopic(of: request, isManaged: connection.isManaged) {
            return handle(exchange, topic, connection)
        }
        if connection.isManaged {
            note(exchange, 404, "BadPath", isTaken: false)
            return exchange.answer(404, reason: "BadPath")
        }
        if let (status, reason) = judge.refusal(of: request, now: now / 1_000, parser: parser) {
            note(exchange, status, reason, isTaken: false)
            return exchange.answer(status, reason: reason)
        }
        let rule = rule(for: request.token)
        let deed = rule?.deed ?? .answer
        let status = rule?.status ?? 200
        let isTaken =
            deed == .answer || deed == .goodbyeAfter ? status == 200 : deed != .resetUntaken && deed != .goodbyeBelow
        note(exchange, status, rule?.reason ?? "", isTaken: isTaken, deed: deed)
        if isTaken {
            takenCount += 1
            phones.show(request, at: now, parser: parser)
        }
        after(rule?.delayMilliseconds ?? 0) { [unowned self] in perform(deed, exchange, rule) }
    }

    private func handle(_ exchange: FakeExchange, _ topic: String, _ connection: FakeConnection) {
        let request = exchange.request
        let verdict: FakeChannels.Verdict
        if let refusal = judge.channelRefusal(of: request, topic: topic, now: wallMilliseconds / 1_000) {
            verdict = FakeChannels.Verdict(status: refusal.0, reason: refusal.1)
        } else {
            verdict = channels.handle(request, topic: topic, isManaged: connection.isManaged, parser: parser)
        }
        channelRequestCount += 1
        let number = "\(channelRequestCount)"
        let made = "00000000-0000-4000-8000-" + String(repeating: "0", count: max(0, 12 - number.count)) + number
        note(exchange, verdict.status, verdict.reason, isTaken: verdict.status / 100 == 2, channel: verdict.channelID)
        exchange.answer(verdict, requestID: request.fields["apns-request-id"] ?? made)
    }

    private func rule(for token: String) -> FakeScript.Rule? {
        for (index, rule) in script.rules.enumerated() where token.lowercased().hasPrefix(rule.prefix) {
            let used = uses[index, default: 0]
            if let times = rule.times, used >= times { continue }
            uses[index] = used + 1
            return rule
        }
        return nil
    }

    private func perform(_ deed: FakeScript.Deed, _ exchange: FakeExchange, _ rule: FakeScript.Rule?) {
        guard let connection = exchange.connection, connection.session != nil else { return }
        switch deed {
        case .answer, .goodbyeAfter:
            var timestamp = rule?.timestamp ?? 0
            if rule?.status == 410, timestamp == 0 { timestamp = wallMilliseconds }
            exchange.answer(
                rule?.status ?? 200, reason: rule?.reason ?? "", timestamp: timestamp,
                retryAfter: rule?.retryAfterSeconds)
            let isWornOut = script.requestsPerConnection.map { connection.requestCount >= $0 } ?? false
            if deed == .goodbyeAfter || isWornOut { connection.sayGoodbye(lastStream: nil) }
        case .resetTaken, .resetUntaken: connection.session?.reset(exchange, HTTP2Code.internalError)
        case .silence: break
        case .cutTaken: connection.close()
        case .goodbyeBelow: connection.sayGoodbye(lastStream: max(0, exchange.id - 2))
        }
        connection.flush()
    }

    private func after(_ milliseconds: UInt64, _ work: @escaping () -> Void) {
        guard milliseconds > 0 else { return work() }
        delayed.add(at: loop.now + milliseconds, work)
    }

    private func tick(_ now: UInt64) {
        for work in delayed.takeDue(now) { work() }
    }

    /// Replaces the script, from the next request on.
    package func play(_ script: FakeScript) {
        self.script = script
        uses = [:]
    }

    // MARK: Record

    private func note(
        _ exchange: FakeExchange, _ status: Int, _ reason: String, isTaken: Bool, deed: FakeScript.Deed = .answer,
        channel: String? = nil
    ) {
        guard let record else { return }
        let request = exchange.request
        let isAboutChannels = request.token.isEmpty
        let provider = judge.providerToken(of: request)
        let isJSON = request.body.withUnsafeBytes { (try? parser.parse($0)) != nil }
        let origin: JSONObject = [
            "at": SystemClock.wallMilliseconds, "environment": judge.environment.rawValue,
            "connection": exchange.connection?.number ?? 0, "stream": exchange.id, "token": request.token,
            "method": isAboutChannels ? request.method : nil, "path": isAboutChannels ? request.path : nil,
            "channelId": channel ?? request.fields["apns-channel-id"], "keyId": provider?.keyID,
            "issuedAt": provider?.issuedAt,
        ]
        let headers: JSONObject = [
            "id": request.fields["apns-id"], "topic": request.fields["apns-topic"],
            "pushType": request.fields["apns-push-type"], "priority": request.fields["apns-priority"],
            "expiration": request.fields["apns-expiration"], "collapseId": request.fields["apns-collapse-id"],
        ]
        let body: any JSONWritable =
            isJSON ? JSONText(request.body) : String(decoding: request.body, as: UTF8.self)
        let verdict: JSONObject = [
            "deed": deed.rawValue, "status": status, "reason": reason, "taken": isTaken, "body": body,
        ]
        record((origin + headers + verdict).bytes)
    }

    // MARK: Phones

    package func phonesPage() -> [UInt8] { phones.page() }

    package func channelsPage() -> [UInt8] { channels.page() }

    package func tapsPage(after number: Int) -> [UInt8] { phones.page(tapsAfter: number) }

    /// Taps a notification; returns the app's data as JSON, or `nil` if the phone does not show the notification.
    package func tap(token: String, id: String) -> [UInt8]? {
        phones.tap(token, id)?.members.bytes
    }
}
