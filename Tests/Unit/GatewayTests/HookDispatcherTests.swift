import Configuration
import Glibc
import HTTPClient
import Platform
import Testing

@testable import Gateway

@Suite("Hook dispatcher")
struct HookDispatcherTests {
    /// A policy that accepts any 2xx, "signs" with the number of secrets, and records the outcomes of batches.
    final class Policy: HookPolicy {
        private struct State: ~Copyable {
            var ended: [(HookDelivery, HookOutcome)] = []
            var mayHaveArrived: Set<String> = []
            var headerCalls = 0
        }
        private let state = Monitor(State())

        func headers(for delivery: HookDelivery, secrets: [Secret], unixSeconds: Int64) -> [(
            name: String, value: String
        )] {
            let call = state.withLock { state in
                state.headerCalls += 1
                return state.headerCalls
            }
            return [("webhook-id", delivery.id), ("webhook-timestamp", "\(unixSeconds)"), ("x-call", "\(call)")]
        }

        func decide(_ response: HookResponse, for delivery: HookDelivery) -> HookDecision {
            200...299 ~= response.status ? .done : .retry
        }

        func ended(_ delivery: HookDelivery, _ outcome: HookOutcome, mayHaveArrived: Bool) {
            state.broadcast { state in
                state.ended.append((delivery, outcome))
                if mayHaveArrived { state.mayHaveArrived.insert(delivery.id) }
            }
        }

        /// The ids of ended batches that the receiver may have received.
        var mayHaveArrived: Set<String> { state.withLock { $0.mayHaveArrived } }

        /// Returns the outcomes by id once there are `count`; the bound only ends a test that fails anyway.
        func wait(for count: Int) -> [String: HookOutcome] {
            state.wait(
                atMostMilliseconds: 60_000, while: { $0.ended.count < count },
                then: { Dictionary($0.ended.map { ($0.0.id, $0.1) }, uniquingKeysWith: { first, _ in first }) })
        }

        var endedCount: Int { state.withLock { $0.ended.count } }
    }

    private func hook(_ url: String, timeout: Int64 = 20) throws -> GatewayConfiguration.Hook {
        var hook = GatewayConfiguration.Hook(url: try HookURL(url), secrets: [Secret("whsec_x")])
        hook.timeoutSeconds = timeout
        return hook
    }

    private func delivery(_ id: String = "m1", giveUpAfter milliseconds: Int64? = nil) -> HookDelivery {
        let now = Int64(SystemClock.monotonicMilliseconds)
        return HookDelivery(id: id, body: Array("{\"jobs\":[]}".utf8), giveUpAt: milliseconds.map { now + $0 })
    }

    @Test("a batch arrives complete with its headers, and its answer is returned")
    func posted() throws {
        let server = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("200 OK", "{\"results\":[]}") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        let outcome = policy.wait(for: 1)
        #expect(outcome["m1"] == .answered(HookResponse(status: 200, body: Array("{\"results\":[]}".utf8))))
        let request = try #require(server.requests.first)
        #expect(request.head.hasPrefix("POST /hook HTTP/1.1\r\n"))
        #expect(request.body == Array("{\"jobs\":[]}".utf8))
        #expect(request.header("webhook-id") == "m1")
        #expect(request.header("content-type") == "application/json; charset=utf-8")
        #expect(request.header("expect") == nil)
        #expect(dispatcher.state.isHealthy)
        #expect(dispatcher.state.lastStatus == 200)
        #expect(dispatcher.state.heldCount == 0)
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
    }

    @Test("a failure is retried under the same id with fresh headers, and shown in the state")
    func retried() throws {
        let gate = Monitor(false)
        let server = try TinyHTTPServer { index, _ in
            switch index {
            case 0: return ""  // The connection breaks.
            case 1: return TinyHTTPServer.answer("503 Busy")
            default:
                gate.wait(while: { !$0 }, then: { _ in })
                return TinyHTTPServer.answer("204 No Content")
            }
        }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(server.wait(forRequests: 2))
        #expect(!dispatcher.state.isHealthy)
        #expect(dispatcher.room == 0)
        gate.broadcast { $0 = true }
        #expect(policy.wait(for: 1)["m1"] == .answered(HookResponse(status: 204, body: [])))
        #expect(server.requests.map { $0.header("webhook-id") } == ["m1", "m1", "m1"])
        #expect(server.requests.map { $0.header("x-call") } == ["1", "2", "3"])
        #expect(dispatcher.state.isHealthy)
        #expect(dispatcher.state.attemptsFailed == 2)
        #expect(dispatcher.state.attemptsAnswered == 1)
        var figures = MetricFigures()
        figures.hook = dispatcher.figures
        let channels = try hook(server.url).channels
        #expect(figures.hook?.channels == channels)
        let text = String(decoding: MetricsPage.render(figures), as: UTF8.self)
        #expect(text.contains("\nlongwire_hook_healthy 1\n"))
        #expect(text.contains("longwire_hook_attempts_total{result=\"failed\"} 2\n"))
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
    }

    @Test("a redirect is not followed")
    func redirect() throws {
        let other = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("200 OK") }
        let target = other.url
        let server = try TinyHTTPServer { index, _ in
            index == 0
                ? TinyHTTPServer.answer("307 Moved", headers: "Location: \(target)\r\n")
                : TinyHTTPServer.answer("200 OK")
        }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(policy.wait(for: 1)["m1"] == .answered(HookResponse(status: 200, body: [])))
        #expect(server.requests.count == 2)
        #expect(other.requests.isEmpty)
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
        other.stop()
    }

    @Test("an answer beyond the bound is a failure and is not buffered")
    func oversizedAnswer() throws {
        let body = String(repeating: "x", count: HookLimits.responseByteCount + 1)
        let server = try TinyHTTPServer { index, _ in TinyHTTPServer.answer("200 OK", index == 0 ? body : "small") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(policy.wait(for: 1)["m1"] == .answered(HookResponse(status: 200, body: Array("small".utf8))))
        #expect(dispatcher.state.attemptsFailed == 1)
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
    }

    @Test("an expired batch is dropped, which frees its room")
    func givenUp() throws {
        let server = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("500 No") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery(giveUpAfter: 100)))
        #expect(policy.wait(for: 1)["m1"] == .givenUp)
        #expect(dispatcher.state.heldCount == 0)
        #expect(dispatcher.state.deliveriesGivenUp == 1)
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
    }

    @Test("a receiver's bad certificate has a name of its own")
    func certificateFailure() {
        func failure(_ kind: HTTPCallFailure.Kind) -> HookFailure {
            HookFailure(HTTPCallFailure(kind: kind, description: "url: cause", cause: "cause"))
        }
        #expect(failure(.certificate) == .certificate && !HookFailure.certificate.mayHaveArrived)
        #expect(failure(.tls) == .tls && failure(.ownCertificate) == .tls)
    }

    @Test("a receiver that does not listen is distinguished from one without TLS; no plain request is made")
    func failureNames() throws {
        let closed = try ClosedPort()
        let server = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("200 OK") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(
            configuration: hook("http://127.0.0.1:\(closed.port)/"), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(fails(dispatcher, by: .connect))
        dispatcher.update(try hook("https://127.0.0.1:\(server.port)/"))
        #expect(fails(dispatcher, by: .tls))
        #expect(dispatcher.state.lastCause.contains("SSL"))
        dispatcher.update(nil)
        #expect(policy.wait(for: 1)["m1"] == .givenUp)
        #expect(policy.mayHaveArrived.isEmpty, "no attempt got as far as a request")
        #expect(server.requests.allSatisfy { $0.head == "a TLS handshake" })
        dispatcher.stop(withinMilliseconds: 0)
        server.stop()
    }

    /// Waits until attempts fail with this failure; the bound only ends a test that fails anyway.
    private func fails(_ dispatcher: HookDispatcher, by failure: HookFailure) -> Bool {
        let limit = SystemClock.monotonicMilliseconds + 60_000
        while dispatcher.state.lastFailure != failure, SystemClock.monotonicMilliseconds < limit { usleep(1_000) }
        return dispatcher.state.lastFailure == failure
    }

    /// A port that is bound, but refuses connections because no process listens.
    private final class ClosedPort {
        let port: UInt16
        private let descriptor: CInt

        init() throws {
            let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
            self.descriptor = descriptor
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = inet_addr("127.0.0.1")
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isBound = withUnsafeMutableBytes(of: &address) { bytes in
                guard let start = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self) else { return false }
                return bind(descriptor, start, length) == 0 && getsockname(descriptor, start, &length) == 0
            }
            try #require(isBound)
            port = UInt16(bigEndian: address.sin_port)
        }

        deinit { close(descriptor) }
    }

    @Test("no more batches are held than the bound, and a stop ends each batch exactly once")
    func bounded() throws {
        let server = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("500 No") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        for index in 0..<HookLimits.heldCount { #expect(dispatcher.submit(delivery("m\(index)"))) }
        #expect(!dispatcher.submit(delivery("more")))
        #expect(server.wait(forRequests: 1))
        dispatcher.stop(withinMilliseconds: 60_000)
        #expect(policy.endedCount == HookLimits.heldCount)
        #expect(policy.wait(for: HookLimits.heldCount).values.allSatisfy { $0 == .stopped })
        #expect(policy.mayHaveArrived.contains("m0") && policy.mayHaveArrived.count < HookLimits.heldCount)
        #expect(!dispatcher.submit(delivery("late")))
        server.stop()
    }

    @Test("a stop waits for an answer in flight")
    func stopWaits() throws {
        let gate = Monitor(false)
        let server = try TinyHTTPServer { _, _ in
            gate.wait(while: { !$0 }, then: { _ in })
            return TinyHTTPServer.answer("200 OK")
        }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(server.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(server.wait(forRequests: 1))
        let stopper = try Thread(named: "stopper") { dispatcher.stop(withinMilliseconds: 60_000) }
        gate.broadcast { $0 = true }
        stopper.join()
        #expect(policy.wait(for: 1)["m1"] == .answered(HookResponse(status: 200, body: [])))
        server.stop()
    }

    @Test("a reload sends waiting batches to the new receiver at once; without a hook they are dropped")
    func reload() throws {
        let broken = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("500 No", headers: "Retry-After: 300\r\n") }
        let working = try TinyHTTPServer { _, _ in TinyHTTPServer.answer("200 OK") }
        let policy = Policy()
        let dispatcher = try HookDispatcher(configuration: hook(broken.url), policy: policy, log: nil)
        #expect(dispatcher.submit(delivery()))
        #expect(broken.wait(forRequests: 1))
        dispatcher.update(try hook(working.url))
        #expect(policy.wait(for: 1)["m1"] == .answered(HookResponse(status: 200, body: [])))
        dispatcher.update(try hook(broken.url))
        #expect(dispatcher.submit(delivery("m2")))
        #expect(broken.wait(forRequests: 2))
        dispatcher.update(nil)
        #expect(policy.wait(for: 2)["m2"] == .givenUp)
        #expect(policy.mayHaveArrived == ["m1", "m2"])
        #expect(!dispatcher.submit(delivery("m3")))
        dispatcher.stop(withinMilliseconds: 0)
        broken.stop()
        working.stop()
    }

    @Test("the backoff doubles to five minutes, jitters in its upper half, and honors Retry-After within bounds")
    func backoff() {
        var random = SeededGenerator(state: 1)
        for attempt in 1...40 {
            let ceiling = min(HookLimits.longestBackoff, HookLimits.firstBackoff << Int64(min(attempt - 1, 20)))
            for _ in 0..<50 {
                let delay = HookBackoff.delay(afterAttempt: attempt, retryAfter: nil, random: &random)
                #expect(ceiling / 2...ceiling ~= delay)
            }
        }
        #expect(HookBackoff.delay(afterAttempt: 1, retryAfter: 60_000, random: &random) == 60_000)
        #expect(HookBackoff.delay(afterAttempt: 1, retryAfter: .max, random: &random) == HookLimits.longestBackoff)
        #expect(HookBackoff.delay(afterAttempt: .max, retryAfter: nil, random: &random) <= HookLimits.longestBackoff)
    }
}
