import EventLoops
import Platform
import Testing

@Suite("Mailbox")
struct MailboxTests {
    @Test("messages arrive in order, and a whole array is moved")
    func delivery() throws {
        try withLoop { loop in
            let seen = Probe<[Int]>()
            let box = try #require(loop.run { Mailbox<Int>(into: loop, capacity: 100) { seen.note($0) } })
            var batch = [1, 2, 3]
            #expect(box.send(contentsOf: &batch))
            #expect(batch.isEmpty)
            #expect(box.send(4))
            seen.wait { $0.flatMap { $0 } == [1, 2, 3, 4] }
        }
    }

    @Test("a full mailbox refuses a message or a whole batch, and the sender learns it")
    func overflow() throws {
        try withLoop { loop in
            let seen = Probe<[Int]>()
            let gate = Monitor(false)
            let box = try #require(loop.run { Mailbox<Int>(into: loop, capacity: 3) { seen.note($0) } })
            // The loop is blocked, so it takes no message out.
            let isHeld = Monitor(false)
            loop.submit {
                isHeld.signal { $0 = true }
                gate.wait(while: { !$0 }, then: { _ in })
            }
            isHeld.wait(while: { !$0 }, then: { _ in })
            #expect(box.send(1))
            #expect(box.send(2))
            var batch = [3, 4]
            #expect(!box.send(contentsOf: &batch))
            #expect(batch == [3, 4])
            #expect(box.send(5))
            #expect(!box.send(6))
            #expect(box.count == 3)
            gate.signal { $0 = true }
            #expect(seen.wait { !$0.isEmpty } == [[1, 2, 5]])
            #expect(box.send(7))
            seen.wait { $0.last == [7] }
        }
    }

    @Test("several sends before the loop's next turn wake it once")
    func wakesOnce() throws {
        try withLoop { loop in
            let seen = Probe<[Int]>()
            let gate = Monitor(false)
            let isHeld = Monitor(false)
            let boxes = try #require(
                loop.run {
                    [
                        Mailbox<Int>(into: loop, capacity: 1000) { seen.note($0) },
                        Mailbox<Int>(into: loop, capacity: 1000) { seen.note($0) },
                    ]
                })
            loop.submit {
                isHeld.signal { $0 = true }
                gate.wait(while: { !$0 }, then: { _ in })
            }
            isHeld.wait(while: { !$0 }, then: { _ in })
            let before = loop.wakeupCount
            for number in 0..<500 {
                #expect(boxes[0].send(number))
                #expect(boxes[1].send(number))
            }
            #expect(loop.wakeupCount == before + 1)
            gate.signal { $0 = true }
            seen.wait { $0.map(\.count).reduce(0, +) == 1000 }
        }
    }

    @Test("messages of racing senders all arrive, each sender's in order")
    func racingSenders() throws {
        try withLoop { loop in
            let seen = Probe<[Int]>()
            let box = try #require(loop.run { Mailbox<Int>(into: loop, capacity: 100_000) { seen.note($0) } })
            let first = try Thread(named: "first") {
                for number in 0..<3000 { _ = box.send(number) }
            }
            let second = try Thread(named: "second") {
                for start in stride(from: 3000, to: 6000, by: 10) {
                    var batch = Array(start..<start + 10)
                    _ = box.send(contentsOf: &batch)
                }
            }
            first.join()
            second.join()
            let all = seen.wait { $0.map(\.count).reduce(0, +) == 6000 }.flatMap { $0 }
            #expect(all.filter { $0 < 3000 } == Array(0..<3000))
            #expect(all.filter { $0 >= 3000 } == Array(3000..<6000))
        }
    }

    @Test("messages pending at the loop's stop are delivered, and later ones are refused")
    func afterStop() throws {
        let seen = Probe<[Int]>()
        let loop = try EventLoop(index: 0)
        let box = Mailbox<Int>(into: loop, capacity: 10) { seen.note($0) }
        #expect(box.send(1))
        try loop.start()
        loop.stop()
        loop.join()
        #expect(seen.values == [[1]])
        #expect(!box.send(2))
    }
}
