import Delivery
import TestKit
import Testing
import Wire

@Suite("Feeds: messages from devices, and events")
struct FeedTests {
    static let cid = DeviceID(high: 7, low: 8)
    static let upstream = FeedName(DeliveryHarness.app, .upstream)
    static let events = FeedName(DeliveryHarness.app, .events)

    private static func harness(
        _ change: (inout FeedLimits) -> Void = { _ in }, limits: ShardLimits = ShardLimits()
    ) -> DeliveryHarness {
        var feed = FeedLimits()
        change(&feed)
        return DeliveryHarness(limits: limits) { ($0.upstream, $0.events) = (feed, feed) }
    }

    private static func begin(_ harness: DeliveryHarness, _ command: FeedCommand) -> UInt64 {
        let number = harness.begin(command)
        harness.drain()
        return number
    }

    private static func ask(_ harness: DeliveryHarness, _ command: FeedCommand) -> FeedAnswer? { harness.ask(command) }

    private static func send(
        _ harness: DeliveryHarness, _ request: UInt32, _ text: String = "up", cid: DeviceID = cid
    ) -> FeedAnswer? {
        let message = UpstreamMessage(
            app: DeliveryHarness.app, cid: cid, request: request, payload: Array(text.utf8))
        return ask(harness, .upstream(message))
    }

    private static func page(
        _ harness: DeliveryHarness, after: UInt64? = nil, limit: Int = 100, of feed: FeedName = upstream
    ) throws -> FeedPage {
        let read = FeedRead(feed, after: after, limit: limit, waitMilliseconds: 0)
        guard case .page(let page)? = ask(harness, .read(read)) else { throw Wrong() }
        return page
    }

    private static func texts(_ page: FeedPage) -> [String] {
        page.items.map { String(decoding: $0.payload, as: UTF8.self) }
    }

    private struct Wrong: Error {}

    @Test("messages are read in order from a cursor, in pages, before and after a crash")
    func order() throws {
        let harness = Self.harness()
        for number in 1...7 { #expect(Self.send(harness, UInt32(number), "\(number)") == .taken) }
        for isCold in [false, true] {
            if isCold { harness.crash() }
            let first = try Self.page(harness, limit: 3)
            #expect(Self.texts(first) == ["1", "2", "3"] && first.first == 1 && first.next == 3 && first.missed == 0)
            let rest = try Self.page(harness, after: first.next)
            #expect(Self.texts(rest) == ["4", "5", "6", "7"] && rest.next == 7 && rest.state.last == 7)
            #expect(rest.items.allSatisfy { $0.kind == .upstream && $0.cid == Self.cid } && rest.items[0].request == 4)
            #expect(try Self.page(harness, after: 7).isEmpty)
            let numbers = harness.shard.statistics(of: [DeliveryHarness.app, DeliveryHarness.otherApp])
            #expect(numbers.map(\.upstreamItems) == [7, 0] && numbers.allSatisfy { $0.eventItems == 0 })
        }
    }

    @Test("after a start unread items are counted and dated, and expire even if no consumer asks")
    func figures() throws {
        let harness = Self.harness { $0.age = 3_600_000 }
        let share = LoopShare(index: 0, count: 1)
        let figures = { harness.shard.statistics(of: [DeliveryHarness.app])[0] }
        for number in 1...5 { #expect(Self.send(harness, UInt32(number), "\(number)") == .taken) }
        harness.advance(60_000)
        #expect(Self.send(harness, 6) == .taken)
        #expect(figures().upstreamItems == 6 && figures().upstreamWait == 60_000)
        _ = Self.ask(harness, .acknowledge(Self.upstream, upTo: 5))
        harness.flush()
        #expect(figures().upstreamItems == 1 && figures().upstreamWait == 0)
        harness.advance(30_000)
        harness.crash()
        #expect(figures().upstreamItems == 0, "nobody has looked")
        harness.shard.watchFeeds(share, now: harness.now)
        harness.drain()
        harness.flush()
        harness.advance(1_000)
        harness.flush()
        #expect(figures().upstreamItems == 1 && figures().upstreamWait == 31_000, "\(figures())")
        #expect(harness.shard.statistics.feedItems == 1 && harness.shard.statistics.longestFeedWait == 31_000)
        for _ in 0..<2 {
            harness.advance(3_600_000)
            harness.flush()
        }
        #expect(figures().upstreamItems == 0 && figures().upstreamWait == 0)
        #expect(harness.shard.statistics.feedItemsMissed == 1)
        // A row that cannot be read is read again later.
        #expect(Self.send(harness, 7) == .taken)
        harness.crash()
        harness.store.readsFailFrom = 0
        harness.shard.watchFeeds(share, now: harness.now)
        harness.drain()
        harness.flush()
        harness.store.readsFailFrom = .max
        #expect(figures().upstreamItems == 0)
        harness.letTimePass(10_000)
        harness.shard.watchFeeds(share, now: harness.now)
        harness.drain()
        harness.flush()
        #expect(figures().upstreamItems == 1)
    }

    /// Returns a restarted harness with many apps, of which the last two have an item each.
    private static func manyApps(_ count: Int) -> DeliveryHarness {
        let harness = DeliveryHarness()
        harness.apps = (0..<count).map { place in
            var settings = AppSettings(
                key: AppKey(UInt64(place + 1) &* 0x9E37_79B9_7F4A_7C15), appID: "app\(place)", apnsTopic: "com.example")
            (settings.upstream, settings.events) = (FeedLimits(), FeedLimits())
            return settings
        }
        harness.shard.reload(apps: harness.apps)
        for settings in harness.apps.suffix(2) {
            let message = UpstreamMessage(app: settings.key, cid: Self.cid, request: 1, payload: [1])
            guard case .taken? = Self.ask(harness, .upstream(message)) else {
                Issue.record("a message was not taken")
                continue
            }
        }
        harness.crash()
        return harness
    }

    /// Runs the gateway's ticks.
    private static func watch(_ harness: DeliveryHarness, calls: Int, every milliseconds: Int64) {
        for _ in 0..<calls {
            harness.shard.watchFeeds(LoopShare(index: 0, count: 1), now: harness.now)
            harness.drain()
            harness.flush()
            harness.letTimePass(milliseconds)
        }
    }

    private static func items(_ harness: DeliveryHarness, _ app: AppKey) -> Int {
        harness.shard.statistics(of: [app])[0].upstreamItems
    }

    /// Returns the seconds in which `count` grows, with a call for the feed and a tick each second.
    private static func seconds(_ harness: DeliveryHarness, _ name: FeedName, of count: () -> UInt64) -> [Int] {
        var grown: [Int] = []
        for second in 0..<2_500 {
            let before = count()
            #expect(harness.isBusy(FeedCommand.state(name)))
            watch(harness, calls: 1, every: 1_000)
            if count() > before { grown.append(second) }
        }
        return grown
    }

    @Test(
        "a head that cannot be read is read again with backoff, even if callers ask in between",
        arguments: [true, false])
    func rest(isDamaged: Bool) {
        let harness = Self.manyApps(2)
        let name = FeedName(harness.apps[0].key, .upstream)
        if isDamaged {
            Self.damageHead(harness, name)
            harness.crash()
        } else {
            harness.store.readsFailFrom = 0
            // Other unreadable heads would delay these reads.
            harness.apps.removeLast()
            harness.apps[0].events = nil
            harness.crash()
        }
        let count = { isDamaged ? harness.statistics.damagedRows : harness.statistics.storeReadFailures }
        let looks =
            isDamaged
            ? [0, 10, 30, 70, 150, 310, 630, 1_230, 1_830, 2_430]
            : [0, 10] + Array(stride(from: 30, to: 2_500, by: 30))
        #expect(Self.seconds(harness, name, of: count) == looks)
        #expect(count() == looks.count)
        harness.store.readsFailFrom = .max
        guard !isDamaged else { return }
        Self.watch(harness, calls: 31, every: 1_000)
        #expect(Self.items(harness, harness.apps[0].key) == 1)
    }

    private static func damageHead(_ harness: DeliveryHarness, _ name: FeedName) {
        harness.store.beginBatch(name.home)
        harness.store.put(FeedHeadRow.key(name), wakeAt: 0, prior: .none, byteCount: 3) {
            $0.copyBytes(from: [255, 255, 255])
        }
        _ = harness.store.endBatch()
        harness.store.sync()
    }

    @Test("a damaged head is rarely read, and delays no other app")
    func damagedHead() throws {
        let harness = Self.manyApps(41)
        let all = harness.apps
        let name = FeedName(all[0].key, .upstream)
        Self.damageHead(harness, name)
        harness.apps = Array(all.dropLast())
        harness.crash()
        let logged = { harness.logs.filter { "\($0.name)" == "damagedRow" }.count }
        Self.watch(harness, calls: 100, every: 1_000)
        #expect(Self.items(harness, all[39].key) == 1 && Self.items(harness, all[40].key) == 0)
        #expect(harness.statistics.damagedRows == 4 && logged() == 4)
        harness.shard.reload(apps: all)
        Self.watch(harness, calls: 100, every: 1_000)
        #expect(Self.items(harness, all[40].key) == 1)
        #expect(harness.statistics.damagedRows == 5 && logged() == 5)
        // Who asks for the feed meanwhile has no look of his own.
        #expect(harness.isBusy(FeedCommand.state(name)))
        #expect(harness.statistics.damagedRows == 5)
    }

    @Test("a store that fails all reads is rarely asked, and all apps are counted soon after it recovers")
    func unreadableHeads() {
        let harness = Self.manyApps(40)
        let failures = { harness.statistics.storeReadFailures }
        harness.store.readsFailFrom = 0
        Self.watch(harness, calls: 200, every: 50)
        #expect(failures() == 80, "each head was looked for once")
        Self.watch(harness, calls: 200, every: 50)
        #expect(failures() == 96, "a few were looked for again")
        harness.store.readsFailFrom = .max
        Self.watch(harness, calls: 210, every: 50)
        #expect(failures() == 96 && harness.shard.statistics.feedItems == 2)
        #expect(harness.apps.suffix(2).allSatisfy { Self.items(harness, $0.key) == 1 })
    }

    @Test("no answer precedes durability, and messages lost in a crash may be sent again")
    func durability() throws {
        let harness = Self.harness()
        #expect(Self.send(harness, 1) == .taken)
        let message = UpstreamMessage(app: DeliveryHarness.app, cid: Self.cid, request: 2, payload: [1])
        let taken = Self.begin(harness, .upstream(message))
        let read = Self.begin(harness, .read(FeedRead(Self.upstream, after: 1, limit: 1, waitMilliseconds: 0)))
        harness.store.deliverReplies()
        harness.drain()
        #expect(harness.answers[taken] == nil && harness.answers[read] == nil)
        harness.crash()
        #expect(try Self.page(harness).items.count == 1)
        #expect(Self.send(harness, 2, "again") == .taken)
        #expect(try Self.page(harness).next == 2)
    }

    @Test("a repeated message counts once, also after a crash; its number with other bytes is refused")
    func once() throws {
        let harness = Self.harness()
        #expect(Self.send(harness, 5, "one") == .taken && Self.send(harness, 5, "one") == .taken)
        harness.crash()
        #expect(Self.send(harness, 5, "one") == .taken)
        #expect(Self.send(harness, 5, "two") == .refused(.numberReused))
        // Another device's numbers are independent.
        #expect(Self.send(harness, 5, "two", cid: DeviceID(high: 1, low: 2)) == .taken)
        #expect(try Self.texts(Self.page(harness)) == ["one", "two"])
    }

    @Test("a device's last 64 numbers are remembered, whether read or not")
    func memory() throws {
        let harness = Self.harness()
        for number in 1...100 as ClosedRange<UInt32> { #expect(Self.send(harness, number) == .taken) }
        #expect(Self.ask(harness, .acknowledge(Self.upstream, upTo: 100)) != nil)
        #expect(Self.send(harness, 101) == .taken)
        for number in 38...101 as ClosedRange<UInt32> { #expect(Self.send(harness, number) == .taken) }
        #expect(try Self.page(harness).next == 101)
    }

    @Test("an ack is durable, moves the cursor, removes the rows, and is limited to existing items")
    func acknowledgement() throws {
        let harness = Self.harness()
        for number in 1...5 as ClosedRange<UInt32> { #expect(Self.send(harness, number, "\(number)") == .taken) }
        #expect(harness.rowCount(.feed) == 6)
        guard case .acknowledged(let state)? = Self.ask(harness, .acknowledge(Self.upstream, upTo: 3)) else {
            throw Wrong()
        }
        #expect(state.acked == 3 && state.last == 5)
        harness.flush()
        #expect(harness.rowCount(.feed) == 3)
        harness.crash()
        #expect(try Self.texts(Self.page(harness)) == ["4", "5"])
        // An older ack changes nothing.
        #expect(Self.ask(harness, .acknowledge(Self.upstream, upTo: 1)) != nil)
        #expect(try Self.page(harness).first == 4)
        guard case .beyond(5)? = Self.ask(harness, .acknowledge(Self.upstream, upTo: 6)) else { throw Wrong() }
        let beyond = FeedRead(Self.upstream, after: 9, limit: 1, waitMilliseconds: 0)
        guard case .beyond(5)? = Self.ask(harness, .read(beyond)) else { throw Wrong() }
    }

    @Test("a device and an app are bounded in count and bytes, and an ack makes room")
    func bounds() throws {
        let harness = Self.harness {
            ($0.deviceCount, $0.count) = (3, 5)
            $0.deviceByteCount = 64 << 10
        }
        let other = DeviceID(high: 1, low: 1)
        for number in 1...3 as ClosedRange<UInt32> { #expect(Self.send(harness, number) == .taken) }
        #expect(Self.send(harness, 4) == .refused(.deviceFull))
        for number in 1...2 as ClosedRange<UInt32> { #expect(Self.send(harness, number, cid: other) == .taken) }
        #expect(Self.send(harness, 3, cid: other) == .refused(.appFull))
        // A refused message has no number yet, so it may be repeated.
        #expect(Self.ask(harness, .acknowledge(Self.upstream, upTo: 1)) != nil)
        harness.flush()
        #expect(Self.send(harness, 4) == .taken && Self.send(harness, 3, cid: other) == .refused(.appFull))
        #expect(try Self.page(harness).next == 6)

        let small = Self.harness { $0.deviceByteCount = 20_000 }
        let large = String(repeating: "x", count: 12_000)
        #expect(Self.send(small, 1, large) == .taken && Self.send(small, 2, large) == .refused(.deviceFull))
    }

    @Test("an app without the feed accepts nothing")
    func off() {
        let harness = DeliveryHarness()
        #expect(Self.send(harness, 1) == .refused(.off))
        #expect(harness.rowCount(.feed) == 0 && harness.rowCount(.upstream) == 0)
    }

    @Test("items that are too old expire unread, and the next page has their number")
    func age() throws {
        let harness = Self.harness { $0.age = 60_000 }
        for number in 1...3 as ClosedRange<UInt32> { #expect(Self.send(harness, number) == .taken) }
        harness.advance(40_000)
        #expect(Self.send(harness, 4, "late") == .taken)
        harness.advance(30_000)
        let page = try Self.page(harness)
        #expect(page.missed == 3 && Self.texts(page) == ["late"] && page.first == 4)
        harness.advance(60_000)
        let last = try Self.page(harness)
        #expect(last.missed == 4 && last.items.isEmpty && last.next == 4)
        #expect(harness.shard.statistics.feedItemsMissed == 4)
        #expect(Self.ask(harness, .acknowledge(Self.upstream, upTo: last.next)) != nil)
        #expect(try Self.page(harness).isEmpty)
    }

    @Test("the oldest events make room for new ones, and the gap is reported")
    func gap() throws {
        let harness = Self.harness { $0.count = 10 }
        for number in 1...25 as ClosedRange<Int64> {
            let item = FeedItem(.online, at: harness.now, cid: DeviceID(high: 1, low: UInt64(number)))
            guard case .taken? = Self.ask(harness, .append(Self.events, [item], lost: 0)) else { throw Wrong() }
        }
        harness.flush()
        let page = try Self.page(harness, of: Self.events)
        #expect(page.missed == 15 && page.items.map(\.cid.low) == Array(16...25))
        #expect(page.first == 16 && page.next == 25)
    }

    @Test("events lost before the feed are a gap before the next ones")
    func lost() throws {
        let harness = Self.harness()
        let items = (1...3).map { FeedItem(.expired, at: harness.now, cid: DeviceID(high: 2, low: UInt64($0))) }
        guard case .taken? = Self.ask(harness, .append(Self.events, items, lost: 0)) else { throw Wrong() }
        guard case .taken? = Self.ask(harness, .append(Self.events, items, lost: 4)) else { throw Wrong() }
        let first = try Self.page(harness, of: Self.events)
        #expect(first.next == 3 && first.missed == 0)
        let second = try Self.page(harness, after: first.next, of: Self.events)
        #expect(second.missed == 4 && second.first == 8 && second.items.count == 3)
    }

    @Test("events appended together are one row, and pages may end within it")
    func chunks() throws {
        let harness = Self.harness()
        let items = (1...700).map { FeedItem(.delivered, at: harness.now, cid: DeviceID(high: 2, low: UInt64($0))) }
        guard case .taken? = Self.ask(harness, .append(Self.events, items, lost: 0)) else { throw Wrong() }
        #expect(harness.rowCount(.feed) < 5)
        var cursor: UInt64 = 0
        var found: [UInt64] = []
        while true {
            let page = try Self.page(harness, after: cursor, limit: 99, of: Self.events)
            guard !page.isEmpty else { break }
            #expect(page.missed == 0)
            found += page.items.map(\.cid.low)
            cursor = page.next
        }
        #expect(found == Array(1...700))
    }

    @Test("a consumer waits for the first item up to its timeout, and an abandoned shard answers it")
    func waiting() throws {
        let harness = Self.harness()
        let read = FeedCommand.read(FeedRead(Self.upstream, after: nil, limit: 10, waitMilliseconds: 20_000))
        let first = Self.begin(harness, read)
        harness.flush()
        #expect(harness.answers[first] == nil)
        #expect(Self.send(harness, 1, "now") == .taken)
        guard case .page(let page)? = harness.answer(first, as: FeedAnswer.self) else { throw Wrong() }
        #expect(Self.texts(page) == ["now"])
        #expect(Self.ask(harness, .acknowledge(Self.upstream, upTo: 1)) != nil)

        let second = Self.begin(harness, read)
        harness.advance(19_000)
        #expect(harness.answers[second] == nil)
        harness.advance(1_500)
        guard case .page(let empty)? = harness.answer(second, as: FeedAnswer.self) else { throw Wrong() }
        #expect(empty.isEmpty && empty.next == 1)

        let third = Self.begin(harness, read)
        harness.flush()
        harness.shard.abandon(now: harness.now)
        harness.drain()
        #expect(harness.isBusy(third))
    }
}
