import Testing
import Wire

@testable import LongwireClient

@Suite("Kept calls")
struct KeptCallTests {
    private static let id = MessageID(high: 1, low: 1)

    private static func client(_ store: any StateStore) -> LongwireClient {
        // No process listens on the discard port.
        LongwireClient(
            configuration: ClientConfiguration(host: "127.0.0.1", port: 9, appID: "demo", appSecret: "s"), store: store)
    }

    @Test("a tap before the start is on disk when the call returns")
    func beforeStart() {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        #expect(client.markOpened(Self.id))
        #expect(client.report(.shown(Self.id)))
        #expect(store.load()?.unreportedOpened == [Self.id] && store.load()?.opened == [Self.id])
        #expect(store.load()?.unreported == [.shown(Self.id)])
        #expect(store.load()?.cid == CoreDriver.cid)
    }

    @Test("a tap before the first registration is on disk, too")
    func beforeRegistration() {
        let store = MemoryStateStore()
        #expect(Self.client(store).markOpened(Self.id))
        #expect(store.load()?.unreportedOpened == [Self.id] && store.load()?.appID == "demo")
    }

    @Test("calls during and after the client's stop are stored")
    func aroundStop() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        for round in UInt64(1)...40 {
            try client.start()
            client.stop()
            client.report(.shown(MessageID(high: 2, low: round)))
            if round % 2 == 0 { client.waitUntilStopped() }
            client.markOpened(MessageID(high: 3, low: round))
            client.waitUntilStopped()
            let state = try #require(store.load())
            #expect(state.unreported.last == .shown(MessageID(high: 2, low: round)))
            #expect(state.opened.last == MessageID(high: 3, low: round))
        }
    }

    /// A disk that is full until the test frees it.
    private final class FullStore: StateStore {
        let memory = MemoryStateStore(CoreDriver.registered)
        let isFull = Guarded(true)
        func load() throws -> ClientState? { memory.load() }
        func save(_ state: ClientState) throws {
            if isFull.withValue({ $0 }) { throw LongwireClientError(code: .stateUnwritable, message: "full") }
            memory.save(state)
        }
    }

    @Test("calls that no store accepts are kept in memory up to a bound until one does")
    func fullStore() {
        let store = FullStore()
        let client = Self.client(store)
        for number in 0..<UInt64(Limits.keptCallCount) { #expect(client.markOpened(MessageID(high: 4, low: number))) }
        #expect(!client.markOpened(Self.id), "there is a bound")
        store.isFull.withValue { $0 = false }
        #expect(!client.report(.action(1, Self.id)), "no such action")
        // Any later call finds the disk free again.
        try? client.start()
        client.stop()
        client.waitUntilStopped()
        #expect(store.memory.load()?.opened.last == MessageID(high: 4, low: UInt64(Limits.keptCallCount - 1)))
    }

    @Test("a verdict after the stop is recorded, so that the message is not delivered again")
    func lateVerdict() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        let calls = CallBoard(store: store, appID: "demo")
        var message = ReceivedMessage(CoreDriver.deliver(5))
        message.origin = .init(cid: CoreDriver.cid, queueEpoch: 5)
        calls.postOrKeep([.finish(message, .processed)])
        #expect(store.load()?.streams[0]?.contains(5) == true)
        #expect(store.load()?.streams[0]?.contains(4) == false)
        // Of another queue, or not processed: nothing to record.
        (message.origin.queueEpoch, message.sequence) = (6, 8)
        calls.postOrKeep([.finish(message, .processed)])
        message.origin.queueEpoch = 5
        calls.postOrKeep([.finish(message, .deferred)])
        #expect(store.load()?.streams[0]?.contains(8) == false)
    }

    @Test("values set by the app apply at the next start")
    func settings() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        #expect(!client.setApplicationState(.background), "it does not run yet")
        client.setToken(VendorToken(token: "ab"))
        client.setBadge(3)
        #expect(!client.setHeartbeat(seconds: 5))
        let kept = client.currentConfiguration
        #expect(kept.applicationState == .background && kept.badge == 3 && kept.heartbeatSeconds == 0)
        #expect(kept.tokens == [VendorToken(token: "ab")])
    }

    @Test("a fetch is answered in every state of the client, and any timeout is accepted")
    func fetch() async throws {
        let client = Self.client(MemoryStateStore(CoreDriver.registered))
        #expect(await client.fetch() == FetchResult())
        for _ in 0..<20 {
            try client.start()
            async let result = client.fetch(within: .seconds(Int64.max))
            client.stop()
            #expect(await result == FetchResult())
            client.waitUntilStopped()
        }
    }
}
