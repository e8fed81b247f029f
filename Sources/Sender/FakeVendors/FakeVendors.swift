package import Cryptography
package import EventLoops
internal import JSON
package import Platform

/// The HTTP server of all fake vendors, on one loop.
package final class FakeVendors {
    private static let headers = [
        "authorization", "content-type", "content-encoding", "push-type", "timestamp", "authtoken", "auth_token", "ttl",
        "urgency", "topic",
    ]
    private static let heldLimit = 1_000

    private let loop: EventLoop
    private var service: FakeVendorService
    private let record: (([UInt8]) -> Void)?
    private var server: HTTPServer?
    private var delayed = DelayedWork()
    /// Requests that never get an answer.
    private var held: [HTTPExchange] = []

    /// Serves on `socket`; `record` gets a JSON line for each request, without a line feed.
    package init(
        on loop: EventLoop, socket: consuming ListeningSocket, tls: TLSContext, accounts: FakeAccounts,
        scripts: [FakeVendor: VendorScript], record: (([UInt8]) -> Void)?
    ) throws(SystemError) {
        (self.loop, self.record) = (loop, record)
        service = FakeVendorService(accounts, scripts: scripts)
        var configuration = HTTPServer.Configuration()
        configuration.tls = tls
        configuration.bodyByteLimit = 1 << 20
        // Web Push declares its encryption as a content coding, `aes128gcm`.
        configuration.acceptsCodings = true
        configuration.unixSeconds = { SystemClock.wallMilliseconds / 1_000 }
        server = try HTTPServer(on: loop, socket: socket, configuration: configuration) { [unowned self] in handle($0) }
        loop.onTick { [unowned self] now in tick(now) }
    }

    /// Replaces the scripts, from the next request on.
    package func play(_ scripts: [FakeVendor: VendorScript]) { service.play(scripts) }
    package func phonesPage() -> [UInt8] { service.phonesPage() }
    package var requestCount: Int { service.requestCount }
    package var takenCount: Int { service.takenCount }

    private func handle(_ exchange: HTTPExchange) {
        var headers: [String: String] = [:]
        for name in Self.headers { headers[name] = exchange.header(name) }
        var call = FakeCall(
            path: String(exchange.rawTarget.prefix { $0 != "?" }), headers: headers, body: Array(exchange.body))
        call.method = exchange.method == .post ? "POST" : "other"
        let answer = service.answer(call, now: Int64(SystemClock.wallMilliseconds))
        note(call, answer)
        // A connection cannot be closed within the handler.
        let isCut = answer.deed == .cut || answer.deed == .cutTaken
        after(max(answer.delayMilliseconds, isCut ? 1 : 0)) { [unowned self] in perform(answer, exchange) }
    }

    private func perform(_ answer: FakeAnswer, _ exchange: HTTPExchange) {
        switch answer.deed {
        case .answer:
            exchange.respond(
                status: answer.status, contentType: answer.contentType,
                headers: answer.headers.map { (name: $0.key, value: $0.value) }, body: answer.body)
        case .cut, .cutTaken: exchange.cut()
        case .silence:
            if held.count >= Self.heldLimit { held.removeFirst().cut() }
            held.append(exchange)
        }
    }

    private func after(_ milliseconds: UInt64, _ work: @escaping () -> Void) {
        guard milliseconds > 0 else { return work() }
        delayed.add(at: loop.now + milliseconds, work)
    }

    private func tick(_ now: UInt64) {
        for work in delayed.takeDue(now) { work() }
    }

    private func note(_ call: FakeCall, _ answer: FakeAnswer) {
        guard let record else { return }
        let isJSON = call.body.withUnsafeBytes { (try? JSONParser().parse($0)) != nil }
        let isText = String(validating: call.body, as: UTF8.self) != nil
        let body: any JSONWritable =
            isJSON
            ? JSONText(call.body) : isText ? String(decoding: call.body, as: UTF8.self) : "\(call.body.count) bytes"
        let line: JSONObject = [
            "at": SystemClock.wallMilliseconds, "vendor": answer.vendor?.rawValue, "path": call.path,
            "tokens": answer.tokens, "deed": answer.deed.rawValue, "status": answer.status, "code": answer.code,
            "reason": answer.reason, "taken": answer.isTaken, "body": body,
        ]
        record(line.bytes)
    }
}
