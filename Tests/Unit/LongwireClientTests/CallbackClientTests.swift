import Testing
import Wire

@testable import LongwireClient

@Suite("Callbacks")
struct CallbackClientTests {
    private typealias Callback = CallbackClient.Callback

    @Test("messages and states reach the callbacks in order, on each start", .timeLimit(.minutes(1)))
    func callbacks() async throws {
        let gateway = try FakeGateway(sending: CoreDriver.deliver(1))
        var configuration = ClientConfiguration(host: "127.0.0.1", port: gateway.port, appID: "demo")
        configuration.keepsRunning = true
        let (calls, continuation) = AsyncStream.makeStream(of: Callback.self)
        let store = MemoryStateStore(CoreDriver.registered)
        let client = CallbackClient(configuration: configuration, store: store) { continuation.yield($0) }
        try client.start()
        #expect(throws: LongwireClientError.self) { try client.start() }
        var (seen, iterator) = ([Callback](), calls.makeAsyncIterator())
        // Events and messages are two separate streams, so their callbacks may come in either order.
        while seen.count < 2, let call = await iterator.next() { seen.append(call) }
        #expect(seen.contains(.connected(cid: "\(CoreDriver.cid)")))
        #expect(seen.contains { if case .received(let message) = $0 { message.sequence == 1 } else { false } })
        // The client processes the message after the callback has returned.
        while store.load()?.streams[0]?.contains(1) != true, !Task.isCancelled { await Task.yield() }
        #expect(store.load()?.streams[0]?.contains(1) == true)
        client.client.stop()
        #expect(await iterator.next() == .stopped(nil))
    }

    @Test("each event of interest has a callback")
    func events() {
        let task = TaskID(kind: .single, month: 1, day: 2, random: (3, 4))
        let message = OutgoingMessage(number: 1, payload: [1], task: .none)
        #expect(CallbackClient.callback(for: .revoked(task)) == .revoked(task: task.text))
        #expect(CallbackClient.callback(for: .messageTaken(message)) == .sent(payload: [1], refusal: nil))
        #expect(
            CallbackClient.callback(for: .messageRefused(message, code: 5, reason: "no"))
                == .sent(payload: [1], refusal: "code 5: no"))
        #expect(
            CallbackClient.callback(for: .closed(code: 206, reason: "full"))
                == .disconnected(reason: "the gateway closed with 206: full"))
        #expect(CallbackClient.callback(for: .disconnected(reason: "gone")) == .disconnected(reason: "gone"))
        let error = LongwireClientError(code: .refused, message: "no")
        #expect(CallbackClient.callback(for: .stopped(error)) == .stopped(error))
        #expect(CallbackClient.callback(for: .retrying(afterMilliseconds: 5)) == nil)
    }

    @Test("each error code has its own number, and an unknown code has 0")
    func errorNumbers() {
        let codes: [LongwireClientError.Code] = [
            .stateUnreadable, .stateDamaged, .stateUnwritable, .badConfiguration, .refused, .protocolViolation,
            .unreachable, .systemResource, .wrongState, .namesRefused, .tryLater,
        ]
        #expect(codes.map { LongwireClientError(code: $0, message: "").number } == Array(1...11))
        #expect(LongwireClientError(code: .init(rawValue: "newer"), message: "").number == 0)
    }

    @Test("a result has the value of UIKit's")
    func fetchResults() {
        let results: [RemoteNotificationResult] = [.newData, .noData, .failed, .notFromGateway]
        #expect(results.map(\.backgroundFetchResult) == [0, 1, 2, -1])
    }
}
