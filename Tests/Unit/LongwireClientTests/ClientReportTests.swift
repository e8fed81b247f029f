import Testing
import Wire

@testable import LongwireClient

@Suite("Reports, fetches and heartbeats")
struct ClientReportTests {
    private static let id = MessageID(high: 9, low: 1)

    private func feedback(_ driver: CoreDriver) -> [Feedback] {
        driver.sent.compactMap { if case .feedback(let feedback) = $0 { feedback } else { nil } }
    }

    @Test("reports without a session are stored, sent in the next one, and kept until they are answered")
    func kept() throws {
        var driver = CoreDriver(state: CoreDriver.registered)
        driver.perform(.report(.shown(Self.id)))
        driver.perform(.report(.action(90_001, Self.id)))
        driver.perform(.report(.shown(Self.id)))
        #expect(driver.stored?.unreported == [.shown(Self.id), .action(90_001, Self.id)])

        var later = try CoreDriver.ready(try #require(driver.stored))
        #expect(feedback(later).map(\.kind) == [.shown, .action])
        #expect(feedback(later).map(\.action) == [0, 90_001])
        #expect(later.stored?.unreported.count == 2, "a lost connection must not lose them")
        later.core.disconnected(reason: "gone", at: later.now)
        later.turn()
        later.pass(milliseconds: 10_000)
        later.connect()
        try later.welcome()
        #expect(feedback(later).count == 4)
        try later.receive(Pong(nonce: try #require(later.pings.last).nonce))
        #expect(later.stored?.unreported == [])
    }

    @Test("only the last 256 reports are kept")
    func bound() {
        var driver = CoreDriver(state: CoreDriver.registered)
        for number in 1...300 { driver.perform(.report(.shown(MessageID(high: 9, low: UInt64(number))))) }
        #expect(driver.stored?.unreported.count == 256)
        #expect(driver.stored?.unreported.first == .shown(MessageID(high: 9, low: 45)))
    }

    @Test("a background fetch connects at once, is reachable during it, and ends when the gateway is silent")
    func fetch() throws {
        var driver = CoreDriver(state: CoreDriver.registered) { $0.applicationState = .background }
        driver.core.start(at: driver.now)
        driver.core.disconnected(reason: "no network", at: driver.now)
        driver.turn()
        let attempts = driver.connectedTo.count
        driver.perform(.fetch(milliseconds: 20_000))
        #expect(driver.connectedTo.count == attempts + 1)
        driver.connect()
        #expect(driver.hellos.last?.keepsRunning == true)
        try driver.welcome()
        driver.pass(milliseconds: 1_000)
        try driver.receive(CoreDriver.deliver(1), CoreDriver.deliver(2))
        driver.pass(milliseconds: Limits.fetchQuietMilliseconds - 1)
        #expect(!driver.events.contains(.fetched(messages: 2, isComplete: true)))
        driver.pass(milliseconds: 1)
        #expect(driver.events.contains(.fetched(messages: 2, isComplete: true)))
        #expect(driver.updates.last?.keepsRunning == false, "it counts as suspended again")
        #expect(driver.core.deadline.map { $0 > driver.now.monotonic } == true)
    }

    @Test("a fetch without a gateway ends in time, and an app that entered the foreground stays there")
    func fetchEnds() throws {
        var driver = CoreDriver(state: CoreDriver.registered) { $0.applicationState = .background }
        driver.start()
        driver.perform(.fetch(milliseconds: 5_000))
        driver.perform(.applicationState(.foreground, keepsRunning: false))
        driver.pass(milliseconds: 5_000)
        #expect(driver.events.contains(.fetched(messages: 0, isComplete: false)))
        #expect(driver.core.configuration.applicationState == .foreground)
        #expect(driver.updates.allSatisfy { $0.applicationState != .background })
    }

    @Test(
        "a silence that kills the connection halves the heartbeat; answered Pings lengthen it again, up to the default"
    )
    func heartbeat() throws {
        var driver = try CoreDriver.ready()
        // The path dies during the silence before the first Ping.
        driver.pass(milliseconds: 60_000)
        #expect(driver.pings.count == 1)
        driver.pass(milliseconds: Limits.pongMilliseconds)
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.heartbeatSeconds == 30)
        try driver.welcome { $0.heartbeatSeconds = 30 }
        var asked: [UInt32] = []
        for answer in 1...80 {
            driver.pass(milliseconds: driver.core.heartbeatMilliseconds)
            try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
            guard let update = driver.updates.last, update.heartbeatSeconds != asked.last else { continue }
            asked.append(update.heartbeatSeconds)
            var result = UpdateResult()
            (result.request, result.heartbeatSeconds) = (update.request, update.heartbeatSeconds)
            try driver.receive(result)
            #expect(answer == (asked.count == 1 ? Limits.answersBeforeLonger : 4 + Limits.answersBeforeRetrial))
        }
        #expect(asked == [45, 60], "the length that died is tried again only after many answers")
    }

    @Test("the heartbeat learned on a network is requested again after a restart, and on no other network")
    func heartbeatOfNetwork() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.networkChanged(name: "wifi"))
        try driver.receive(Pong(nonce: try #require(driver.pings.last).nonce))
        driver.pass(milliseconds: 60_000)
        driver.pass(milliseconds: Limits.pongMilliseconds)
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.heartbeatSeconds == 30)
        let stored = try ClientState(serialized: try #require(driver.stored).serialized)

        var again = try CoreDriver.ready(stored)
        #expect(again.hellos.last?.heartbeatSeconds == 30)
        for (name, seconds) in [("cellular", 0), ("wifi", 30), (nil, 0)] as [(String?, UInt32)] {
            again.perform(.networkChanged(name: name))
            again.core.disconnected(reason: "reset", at: again.now)
            again.turn()
            again.pass(milliseconds: 10_000)
            again.connect()
            #expect(again.hellos.last?.heartbeatSeconds == seconds)
            try again.welcome()
        }
    }

    @Test("a connection that dies during traffic does not change the heartbeat")
    func heartbeatInTraffic() throws {
        var driver = try CoreDriver.ready()
        driver.pass(milliseconds: 30_000)
        try driver.receive(Ping(nonce: 1))
        driver.core.disconnected(reason: "reset", at: driver.now)
        driver.turn()
        driver.pass(milliseconds: 10_000)
        driver.connect()
        #expect(driver.hellos.last?.heartbeatSeconds == 0)
    }

    @Test("a notification has the message's id; other notifications yield nil")
    func notification() throws {
        let task = TaskID(kind: .single, month: 11, day: 21, random: (1, 2))
        let ids = "\(task.text):\(Self.id)"
        let tapped: [AnyHashable: Any] = [
            "_gmid_": ids, "payload": "x", "aps": ["alert": ["title": "t"]] as [String: Any],
        ]
        let notification = try #require(PushNotification(userInfo: tapped))
        #expect(notification.taskID == task && notification.messageID == Self.id)
        #expect(notification.payload == "x" && !notification.isSilent)
        let silent: [AnyHashable: Any] = ["_gmid_": ids, "aps": ["content-available": 1] as [String: Any]]
        #expect(PushNotification(userInfo: silent)?.isSilent == true)
        for other: [AnyHashable: Any] in [[:], ["_gmid_": "x"], ["_gmid_": "\(task.text):12"], ["_gmid_": 7]] {
            #expect(PushNotification(userInfo: other) == nil)
        }
    }
}
