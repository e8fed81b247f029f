import Quotas
import Delivery
import Testing
import Wire

@Suite("A list's devices")
struct ListRunTests {
    @Test("each loop gets one part, each device its place, and a second answer changes nothing")
    func deal() {
        let task = TaskID(kind: .list, month: 1, day: 2, random: (3, 4))
        let targets: [ListTarget] = (UInt16(0)..<10).map { number in
            ListTarget(
                cid: DeviceID(high: 1, low: UInt64(number)), bucket: Bucket(number), digest: UInt64(number))
        }
        var lengths = MessageContent.Lengths()
        lengths.payload = 2
        let content = MessageContent(
            strategy: .liveElseVendor, timeToLive: 5, vendor: nil, lengths: lengths, arena: Array("hi".utf8))
        let app = AppKey(1)
        let parts = ListRun.deal(
            targets, task: task, app: app, createdAt: 9, content: content, isBulk: true, route: 77, loopCount: 3)
        #expect(parts.map(\.loop) == [0, 1, 2])
        var seen: [Int] = []
        for part in parts {
            part.fanout.forEach { command in
                #expect(command.bucket.loop(of: 3) == part.loop && command.origin.route == 77)
                #expect(command.isBulk && command.taskCreatedAt == 9)
                #expect(Array(command.payload) == Array("hi".utf8))
                let place: UInt64 = command.origin.request
                #expect(command.cid.low == place)
                seen.append(Int(command.origin.request))
            }
        }
        #expect(seen.sorted() == Array(0..<10))

        var run = ListRun(count: 2)
        let outcome = PublishOutcome(code: .accepted, cid: .none, task: task)
        for place in [0, 0, 5] {
            let isLast = run.take(place, outcome)
            #expect(!isLast)
        }
        let isLast = run.take(1, outcome)
        #expect(isLast && run.missing == 0)
    }

    /// Returns one list of devices on one loop.
    private func fanout(_ count: Int, route: UInt64, app: UInt64 = 1) -> Fanout {
        let targets = (0..<count).map {
            ListTarget(cid: DeviceID(high: 1, low: UInt64($0)), bucket: Bucket(0), digest: 0)
        }
        let content = MessageContent(
            strategy: .liveElseVendor, timeToLive: 5, vendor: nil, lengths: MessageContent.Lengths(), arena: [])
        return ListRun.deal(
            targets, task: TaskID(kind: .list, month: 1, day: 2, random: (3, 4)), app: AppKey(app), createdAt: 9,
            content: content, isBulk: true, route: route, loopCount: 1)[0].fanout
    }

    @Test("lists take turns by portions, and each of their devices is handled once")
    func portions() {
        var queue = FanoutQueue(targetLimit: 1_000)
        for (route, count) in [(UInt64(1), 100), (2, 40)] {
            let isTaken = queue.append(fanout(count, route: route), deadline: 5)
            #expect(isTaken)
        }
        #expect(queue.targetCount == 140)
        var routes: [UInt64] = []
        var places: [UInt64: [UInt64]] = [:]
        while let portion = queue.popPortion() {
            #expect(portion.part.count <= FanoutQueue.portionCount)
            routes.append(portion.fanout.route)
            portion.forEach { places[$0.origin.route, default: []].append($0.origin.request) }
        }
        #expect(routes == [1, 2, 1, 2, 1, 1])
        #expect(places == [1: Array(0..<100), 2: Array(0..<40)])
        #expect(queue.isEmpty && queue.targetCount == 0)
    }

    @Test("lists that wait too long are returned, and too many devices are refused")
    func overdue() {
        var queue = FanoutQueue(targetLimit: 100 * FanoutQueue.sharesOfLimit)
        let taken = [
            queue.append(fanout(90, route: 1), deadline: 5), queue.append(fanout(90, route: 2), deadline: 9),
            queue.append(fanout(10, route: 3), deadline: 9),
        ]
        #expect(taken == [true, false, true])
        _ = queue.popPortion()
        let early = queue.popOverdue(now: 4)
        let overdue = queue.popOverdue(now: 5)
        #expect(early.isEmpty && overdue.map(\.part) == [32..<90])
        #expect(queue.targetCount == 10)
        // An empty queue accepts a list of any size, because a call's size has a separate limit.
        _ = queue.popPortion()
        let isTaken = queue.append(fanout(300, route: 4), deadline: 9)
        #expect(isTaken && queue.targetCount == 300)
    }

    @Test("apps take turns, whatever their number of lists, and one app's lists do not take all places")
    func apps() {
        var queue = FanoutQueue(targetLimit: 800)
        let flood = (0..<6).map { queue.append(fanout(40, route: $0), deadline: 5) }
        #expect(flood == [true, true, true, true, true, false], "a quarter of the places, and no more")
        let isTaken = queue.append(fanout(70, route: 9, app: 2), deadline: 5)
        #expect(isTaken)
        var order: [UInt64] = []
        for _ in 0..<6 { order.append(queue.popPortion()?.fanout.app.word ?? 0) }
        #expect(order == [1, 2, 1, 2, 1, 2])
        let onlyForTwo = queue.popPortion { $0 == AppKey(2) }
        #expect(onlyForTwo == nil)
        #expect(queue.popPortion { $0 == AppKey(1) } != nil)
    }
}
