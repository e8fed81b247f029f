import EventLoops
import Platform
import Synchronization
import Testing

@Suite("Event loop")
struct EventLoopTests {
    @Test("work submitted from many threads runs on the loop, each thread's in its order")
    func submissions() throws {
        try withLoop { loop in
            let seen = Probe<[Int]>()
            let order = Lock([Int]())
            let first = try Thread(named: "first") {
                for number in 0..<500 { loop.submit { order.withLock { $0.append(number) } } }
            }
            let second = try Thread(named: "second") {
                for number in 500..<1000 { loop.submit { order.withLock { $0.append(number) } } }
            }
            first.join()
            second.join()
            loop.submit {
                loop.preconditionInLoop()
                seen.note(order.withLock { $0 })
            }
            let all = try #require(seen.wait { !$0.isEmpty }.first)
            #expect(all.filter { $0 < 500 } == Array(0..<500))
            #expect(all.filter { $0 >= 500 } == Array(500..<1000))
        }
    }

    @Test("a turn ends with the hooks before the flush in their order, then those after it")
    func hookOrder() throws {
        try withLoop { loop in
            let steps = Probe<String>()
            _ = loop.run {
                loop.onTurnEnd(.afterFlush) { steps.note("after") }
                loop.onTurnEnd { steps.note("one") }
                loop.onTurnEnd { steps.note("two") }
            }
            let seen = steps.wait { $0.count >= 6 }
            #expect(Array(seen[..<3]) == ["one", "two", "after"])
            #expect(Array(seen[3..<6]) == ["one", "two", "after"])
        }
    }

    @Test("ticks happen without a request, with a time that never decreases")
    func ticks() throws {
        try withLoop { loop in
            let times = Probe<UInt64>()
            _ = loop.run { loop.onTick { times.note($0) } }
            let seen = times.wait { $0.count >= 3 }
            #expect(zip(seen, seen.dropFirst()).allSatisfy { $0 <= $1 })
        }
    }

    @Test("a requested turn runs long before the next tick, and its timer ends with the loop")
    func pauses() throws {
        let turns = Probe<Int>()
        let ticks = Atomic<Int>(0)
        try withLoop { loop in
            _ = loop.run {
                loop.onTick { _ in ticks.wrappingAdd(1, ordering: .relaxed) }
                loop.onTurnEnd {
                    turns.note(1)
                    loop.turnAgain(in: 200_000)
                }
            }
            // Without the timer each turn would wait for a tick.
            _ = turns.wait { $0.count >= 400 }
            #expect(ticks.load(ordering: .relaxed) < 200)
        }
    }

    @Test("stopping runs the stop hooks once, also on a loop that never ran")
    func stopping() throws {
        let stops = Probe<Int>()
        let loop = try EventLoop(index: 3)
        #expect(loop.isInLoop)
        loop.onStop { stops.note(1) }
        try loop.start()
        loop.stop()
        loop.stop()
        loop.join()
        let idle = try EventLoop(index: 4)
        idle.onStop { stops.note(2) }
        idle.stop()
        #expect(stops.values == [1, 2])
    }

    @Test("a value bound to a loop is available on it")
    func loopBound() throws {
        final class Plain { var count = 0 }
        try withLoop { loop in
            let bound = Probe<LoopBound<Plain>>()
            _ = loop.run { bound.note(LoopBound(Plain(), on: loop)) }
            let carried = try #require(bound.values.first)
            let count = loop.run {
                carried.wrapped.count += 2
                return carried.wrapped.count
            }
            #expect(count == 2)
        }
    }

    @Test("a bound value read off its loop stops the process")
    func loopBoundElsewhere() async {
        await #expect(processExitsWith: .failure) {
            let loop = try EventLoop(index: 0)
            let bound = LoopBound(1, on: loop)
            try loop.start()
            _ = bound.wrapped
        }
    }

    @Test("a hook added off the loop stops the process")
    func hookElsewhere() async {
        await #expect(processExitsWith: .failure) {
            let loop = try EventLoop(index: 0)
            try loop.start()
            loop.onTick { _ in }
        }
    }
}
