import Testing
import Wire

@testable import LongwireClient

@Suite("Notifications")
struct NotificationTests {
    static let task = TaskID(kind: .single, month: 11, day: 21, random: (3, 4))
    static func id(_ number: UInt64) -> MessageID { MessageID(high: 9, low: number) }

    /// Returns the `userInfo` of a message's push, as iOS passes it to the app.
    static func userInfo(_ number: UInt64, _ more: [AnyHashable: Any] = [:]) -> [AnyHashable: Any] {
        let own: [AnyHashable: Any] = [
            "_gmid_": "\(task.text):\(id(number))", "aps": ["alert": ["title": "T", "body": "B"]] as [String: Any],
        ]
        return own.merging(more) { $1 }
    }

    private static func client(_ store: any StateStore, port: UInt16 = 9) -> LongwireClient {
        // No process listens on the discard port.
        var configuration = ClientConfiguration(host: "127.0.0.1", port: port, appID: "demo", appSecret: "s")
        configuration.applicationState = .background
        return LongwireClient(configuration: configuration, store: store)
    }

    // MARK: Contents

    @Test("a notification has every member of its push")
    func contents() throws {
        let userInfo = Self.userInfo(
            1,
            [
                "payload": "p", "url": "https://example.com/a", "class": "OrderViewController",
                "property": ["id": "7", "count": 2] as [String: Any], "deep": ["list": [1, "x", true] as [Any]],
                "longwire_media": [] as [Any],
            ])
        let push = try #require(PushNotification(userInfo: userInfo))
        #expect(push.taskID == Self.task && push.messageID == Self.id(1))
        #expect(push.payload == "p" && push.content == .payload)
        #expect(push.alert == MessageAlert(title: "T", body: "B") && !push.isSilent && !push.isLocal)
        #expect(push.url == "https://example.com/a")
        let properties: [String: PushValue] = ["id": .text("7"), "count": .integer(2)]
        #expect(push.jump == .init(className: "OrderViewController", properties: properties))
        #expect(Set(push.extras.keys) == ["url", "class", "property", "deep"])
        #expect(push.extras["deep"]?["list"] == .list([.integer(1), .text("x"), .boolean(true)]))
        #expect(push.userInfo["url"] as? String == "https://example.com/a")
        #expect((push.userInfo["property"] as? [String: any Sendable])?["count"] as? Int == 2)
        #expect(PushNotification(userInfo: push.userInfo) == push, "nothing is lost on the way back")
    }

    @Test("a notification names the place of the publisher's content")
    func places() throws {
        #expect(PushNotification(userInfo: Self.userInfo(1))?.content == .idsOnly)
        #expect(PushNotification(userInfo: Self.userInfo(1, ["order": 5]))?.content == .members)
        #expect(PushNotification(userInfo: Self.userInfo(1, ["order": 5, "payload": ""]))?.content == .payload)
        let silent = try #require(PushNotification(userInfo: Self.userInfo(1, ["aps": ["content-available": 1]])))
        #expect(silent.isSilent && silent.alert == nil && silent.jump == nil && silent.url == nil)
        let text = try #require(PushNotification(userInfo: Self.userInfo(1, ["aps": ["alert": "B"]])))
        #expect(text.alert == MessageAlert(body: "B"))
    }

    @Test(
        "a notification without valid ids is not from the gateway",
        arguments: ["", ":", "a:b", "RASS_1121_", "x:00000000000000000000000000000001"])
    func foreign(ids: String) {
        #expect(PushNotification(userInfo: ["_gmid_": ids]) == nil)
        #expect(PushNotification(userInfo: ["_gmid_": "\(Self.task.text):\(Self.id(1)):\(ids)"]) == nil)
        #expect(PushNotification(userInfo: ["_gmid_": 5]) == nil)
    }

    @Test("values nested deeper than the limit, and values that JSON cannot have, are dropped")
    func bounds() {
        var value: Any = "end"
        for _ in 0..<40 { value = [value] }
        let push = PushNotification(
            userInfo: Self.userInfo(1, ["deep": value, "odd": Self.self, "nan": Double.nan, 5: "number"]))
        var (found, depth) = (push?.values["deep"], 0)
        while let inner = found?.list?.first { (found, depth) = (inner, depth + 1) }
        #expect(depth < Limits.valueDepth && found == .list([]))
        #expect(push?.values["odd"] == nil && push?.values["nan"] == nil && push?.values.count == 3)
        #expect(push.flatMap { PushNotification(stored: $0.line.dropFirst("tap ".count)) } == push)
    }

    @Test("a kept tap survives storing, and damaged bytes of any length are refused")
    func storedForm() throws {
        let push = try #require(
            PushNotification(
                userInfo: Self.userInfo(
                    1, ["n": -5, "d": 1.5, "b": [true, false], "t": "ä:\n", "o": ["k": [] as [Any]] as [String: Any]])))
        let hex = push.line.dropFirst("tap ".count)
        #expect(PushNotification(stored: hex) == push)
        for end in hex.indices { #expect(PushNotification(stored: hex[..<end]) == nil) }
        for text in [
            "", "zz", "6d313a", "6c393939393939393a", "n0:", "74393a61", "64393232313132303233373034313039303536303a",
        ] {
            #expect(PushNotification(stored: text[...]) == nil)
        }
    }

    // MARK: Taps

    @Test("a repeated tap is filtered in the same process and after a restart")
    func repeatedTap() {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        #expect(client.handleTap(userInfo: Self.userInfo(1))?.messageID == Self.id(1))
        #expect(client.handleTap(userInfo: Self.userInfo(1)) == nil)
        #expect(!client.keepTap(userInfo: Self.userInfo(1)))
        let later = Self.client(store)
        #expect(later.handleTap(userInfo: Self.userInfo(1)) == nil)
        #expect(later.handleTap(userInfo: Self.userInfo(2)) != nil, "another message is opened")
        #expect(later.handleTap(userInfo: ["aps": [:] as [String: Any]]) == nil)
        #expect(store.load()?.unreportedOpened == [Self.id(1), Self.id(2)])
    }

    @Test("a running client filters the taps of an earlier process")
    func repeatedTapWhileRunning() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        Self.client(store).handleTap(userInfo: Self.userInfo(1))
        let client = Self.client(store)
        try client.start(opened: [Self.id(3)])
        #expect(client.handleTap(userInfo: Self.userInfo(1)) == nil)
        #expect(client.handleTap(userInfo: Self.userInfo(2)) != nil)
        #expect(client.handleTap(userInfo: Self.userInfo(3)) == nil, "the app has handled it before the start")
        client.stop()
        client.waitUntilStopped()
        #expect(store.load()?.opened == [Self.id(1), Self.id(3), Self.id(2)])
    }

    @Test("a lost registration keeps the taps and the opened messages")
    func lostRegistration() throws {
        var state = CoreDriver.registered
        let tap = try #require(PushNotification(userInfo: Self.userInfo(1)))
        state.keep(.tapped(tap))
        state.forgetRegistration()
        #expect(state.taps == [tap] && state.opened == [Self.id(1)])
        #expect(state.unreportedOpened.isEmpty, "the new device has no such message")
    }

    @Test("a tap is kept until the app asks for it, also across a restart, and is returned once")
    func keptTap() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        #expect(Self.client(store).keepTap(userInfo: Self.userInfo(1, ["url": "u"])))
        let later = Self.client(store)
        try later.start()
        #expect(later.keepTap(userInfo: Self.userInfo(2)))
        let taps = later.takeTaps()
        #expect(taps.map(\.messageID) == [Self.id(1), Self.id(2)] && taps.first?.url == "u")
        #expect(later.takeTaps().isEmpty)
        later.stop()
        later.waitUntilStopped()
        #expect(store.load()?.taps == [])
        #expect(Self.client(store).takeTaps().isEmpty)
    }

    @Test("a running client stores a kept tap at once and reports its message as opened")
    func storedTap() throws {
        let tap = try #require(PushNotification(userInfo: Self.userInfo(1)))
        var driver = try CoreDriver.ready()
        driver.perform(.tapped(tap))
        #expect(driver.stored?.taps == [tap] && driver.stored?.opened == [Self.id(1)])
        #expect(driver.log.contains("feedback"))
        let stored = try #require(driver.stored)
        #expect(try ClientState(serialized: stored.serialized) == stored)
        driver.perform(.tapsTaken([Self.id(1)]))
        #expect(driver.stored?.taps == [])
    }

    @Test("the newest eight taps are kept, and none that is longer than a push")
    func tapBounds() throws {
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        for number in UInt64(1)...10 { #expect(client.keepTap(userInfo: Self.userInfo(number))) }
        #expect(store.load()?.taps.map(\.messageID) == (3...10).map { Self.id($0) })
        let long = String(repeating: "x", count: Limits.tapByteCount)
        #expect(client.keepTap(userInfo: Self.userInfo(11, ["payload": long])))
        #expect(store.load()?.taps.last?.messageID == Self.id(10) && store.load()?.opened.last == Self.id(11))
        #expect(client.takeTaps().map(\.messageID) == (4...11).map { Self.id($0) }, "this process still has it")
        // A push from APNs and a local notification of the longest message are short enough.
        let most = String(repeating: "\u{1}", count: 16 << 10)
        #expect(PushNotification(userInfo: Self.userInfo(1, ["payload": most]))?.isKeepable == true)
    }

    @Test("a store that cannot be read does not swallow taps")
    func unreadableStore() {
        struct LockedStore: StateStore {
            func load() throws -> ClientState? {
                throw LongwireClientError(code: .stateUnreadable, message: "the phone is locked")
            }
            func save(_ state: ClientState) throws {}
        }
        let client = Self.client(LockedStore())
        #expect(client.keepTap(userInfo: Self.userInfo(1)))
        #expect(client.handleTap(userInfo: Self.userInfo(1)) == nil)
        #expect(client.handleTap(userInfo: Self.userInfo(2)) != nil)
        #expect(client.takeTaps().map(\.messageID) == [Self.id(1)])
    }

    // MARK: Arrival

    @Test("a silent push, an alert and the copy on the connection are one message to the app", .timeLimit(.minutes(1)))
    func oneCallback() async throws {
        let gateway = try FakeGateway(sending: CoreDriver.deliver(1))
        let client = Self.client(MemoryStateStore(CoreDriver.registered), port: gateway.port)
        let collector = Task {
            var ids: [MessageID] = []
            for await message in client.messages { ids.append(message.messageID) }
            return ids
        }
        try client.start()
        let silent = Self.userInfo(1, ["aps": ["content-available": 1]])
        #expect(await client.handleRemoteNotification(userInfo: silent) == .newData)
        #expect(await client.handleRemoteNotification(userInfo: Self.userInfo(1), within: .seconds(3_600)) == .noData)
        #expect(client.presentation(userInfo: Self.userInfo(1)) == .hide(.received))
        // A tap is independent of the arrival: the app opens the page once.
        #expect(client.handleTap(userInfo: Self.userInfo(1)) != nil)
        #expect(client.applicationWillTerminate(within: .seconds(5)))
        #expect(await collector.value == [Self.id(1)])
        while gateway.reported.last != .terminated, !Task.isCancelled { await Task.yield() }
        #expect(gateway.reported.last == .terminated)
        // There is one fetch: a Hello, two updates of the fetch, and the final state.
        #expect(gateway.reported.count <= 4, "the second push of the message needs no fetch")
        #expect(client.currentConfiguration.applicationState == .background, "a later start is not affected")
    }

    @Test("a push is shown without a session, and hidden within one until its message arrives")
    func presentedOnce() throws {
        let board = NotificationBoard()
        let (first, second) = (CoreDriver.deliver(1) { $0.alertedAt = 7 }, CoreDriver.deliver(2) { $0.alertedAt = 7 })
        #expect(board.present(first.messageID) == .show(.disconnected))
        board.note(.welcomed(WelcomeDetails(Welcome(), cid: CoreDriver.cid)))
        #expect(board.present(second.messageID) == .hide(.arriving))
        // The user has seen the first alert and not the second one.
        #expect(board.receive(ReceivedMessage(first)).provenance == .alerted(at: 7))
        #expect(board.receive(ReceivedMessage(second)).provenance == .live)
        #expect(board.receive(ReceivedMessage(second)).provenance == .alerted(at: 7), "only the first copy is new")
        #expect(board.present(second.messageID) == .hide(.received))
        for event in [ClientEvent.disconnected(reason: ""), .closed(code: 1, reason: ""), .stopped(nil)] {
            board.note(.welcomed(WelcomeDetails(Welcome(), cid: CoreDriver.cid)))
            board.note(event)
            #expect(board.present(Self.id(3)) == .show(.disconnected))
        }
    }

    @Test("a push in the foreground makes the client test its connection, or reconnect soon")
    func checkedConnection() throws {
        var driver = try CoreDriver.ready()
        driver.perform(.checkConnection)
        #expect(driver.pings.count == 1)
        driver.perform(.checkConnection)
        #expect(driver.pings.count == 1, "one Ping is in flight")
        driver.pass(milliseconds: Limits.pongMilliseconds)
        driver.core.phase = .waiting(until: driver.now.monotonic + 100_000)
        driver.perform(.checkConnection)
        driver.pass(milliseconds: Limits.backoffBaseMilliseconds)
        #expect(driver.connectedTo.count == 2)
    }

    @Test("a push of another service, or without a running client, is left to the app")
    func notOurs() async {
        let client = Self.client(MemoryStateStore(CoreDriver.registered))
        #expect(client.presentation(userInfo: ["aps": [:] as [String: Any]]) == .show(.foreign))
        #expect(client.presentation(userInfo: Self.userInfo(1)) == .show(.disconnected))
        #expect(await client.handleRemoteNotification(userInfo: [:]) == .notFromGateway)
        #expect(await client.handleRemoteNotification(userInfo: Self.userInfo(1)) == .failed)
        #expect(client.applicationWillTerminate(), "there is nothing to stop")
    }

    @Test("a termination does not wait longer than its limit")
    func terminationBound() throws {
        let latch = Latch()
        #expect(!latch.wait(milliseconds: 1) && !latch.wait(milliseconds: 0))
        latch.open()
        #expect(latch.wait(milliseconds: 0))
        let client = Self.client(MemoryStateStore(CoreDriver.registered))
        try client.start()
        #expect(client.applicationWillTerminate(within: .seconds(Int64.max)))
    }

    // MARK: Local notifications, badge, revokes

    @Test("a local notification of a message is shown, and its tap is handled as that of the push")
    func localNotification() throws {
        var deliver = CoreDriver.deliver(1)
        (deliver.taskID, deliver.payload) = (Self.task, Array("ä".utf8))
        let message = ReceivedMessage(deliver)
        let push = try #require(PushNotification(userInfo: message.notificationUserInfo))
        #expect(push.taskID == Self.task && push.messageID == Self.id(1) && push.payload == "ä" && push.isLocal)
        #expect(message.notificationIdentifier == "\(Self.id(1))")
        let store = MemoryStateStore(CoreDriver.registered)
        let client = Self.client(store)
        #expect(client.presentation(userInfo: message.notificationUserInfo) == .show(.local))
        #expect(client.handleTap(userInfo: message.notificationUserInfo) == push)
        #expect(client.handleTap(userInfo: Self.userInfo(1)) == nil, "the push for the same message")
        #expect(store.load()?.opened == [Self.id(1)])
    }

    @Test("a payload that is no text is left out of a local notification", arguments: [[], [0xFF], [0x61, 0xC3]])
    func binaryPayload(payload: [UInt8]) throws {
        var deliver = CoreDriver.deliver(1)
        (deliver.taskID, deliver.payload) = (Self.task, payload)
        let push = try #require(PushNotification(userInfo: ReceivedMessage(deliver).notificationUserInfo))
        #expect(push.payload == nil && push.content == .idsOnly)
    }

    @Test("the notifications of a revoked task are found, pushed and local ones, and no others")
    func revoked() {
        let other = "\(TaskID(kind: .single, month: 11, day: 21, random: (3, 5)).text):\(Self.id(3))"
        let shown: [(identifier: String, userInfo: [AnyHashable: Any])] = [
            ("a", Self.userInfo(1)), ("b", [:]), ("c", ["_gmid_": other]),
            ("d", Self.userInfo(2, ["longwire_local": true])),
        ]
        #expect(RevokedNotifications.identifiers(of: Self.task, among: shown) == ["a", "d"])
        #expect(RevokedNotifications.identifiers(of: TaskID(high: 1, low: 1), among: shown).isEmpty)
    }

    @Test("a badge of 0 keeps the notifications by a local notification, and any other number needs none")
    func badge() {
        #expect(IconBadge(0, keepsNotifications: true) == .localNotification(badge: -1))
        #expect(IconBadge(-3, keepsNotifications: true) == .localNotification(badge: -1))
        #expect(IconBadge(0, keepsNotifications: false) == .count(0))
        #expect(IconBadge(-3, keepsNotifications: false) == .count(0))
        #expect(IconBadge(7, keepsNotifications: true) == .count(7))
    }

    // MARK: Media

    @Test("the files of a push have their kind, address, condition and type")
    func media() throws {
        let userInfo = Self.userInfo(
            1,
            [
                "longwire_media": [
                    ["url": "https://example.com/a.PNG?x=1.gif", "type": 1] as [String: Any],
                    ["url": "HTTPS://example.com", "type": "2", "only_wifi": true],
                    ["url": "https://example.com/film.exe#a.mov", "type": 3, "only_wifi": "true"],
                    ["url": "https://example.com/fourth.jpg", "type": 1],
                ]
            ])
        let media = try #require(PushNotification(userInfo: userInfo)).media
        #expect(media.map(\.kind) == [.image, .audio, .video], "at most three")
        #expect(media.map(\.fileExtension) == ["png", "mp3", "mp4"])
        #expect(media.map(\.needsWiFi) == [false, true, true])
        #expect(media.map(\.byteLimit) == [10 << 20, 5 << 20, 50 << 20])
        #expect(media.first?.url == "https://example.com/a.PNG?x=1.gif")
    }

    @Test("a file that cannot be attached is left out")
    func refusedMedia() throws {
        let long = "https://example.com/" + String(repeating: "x", count: Limits.mediaAddressByteCount)
        let list: [Any] = [
            ["url": "http://example.com/a.png", "type": 1] as [String: Any],
            ["url": "https://example.com/a.png", "type": 4],
            ["url": "https://example.com/a.png"], ["type": 1], ["url": long, "type": 1], "text", 5,
            ["url": "file:///etc/passwd", "type": 1],
        ]
        #expect(PushNotification(userInfo: Self.userInfo(1, ["longwire_media": list]))?.media == [])
        #expect(PushNotification(userInfo: Self.userInfo(1, ["longwire_media": "text"]))?.media == [])
    }
}
