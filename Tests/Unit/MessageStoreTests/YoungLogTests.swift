import Delivery
import TestKit
import Testing
import Wire

@testable import MessageStore

@Suite("Young log")
struct YoungLogTests {
    private static func key(_ number: UInt64, bucket: UInt16 = 7) -> StoreKey {
        StoreKey(Bucket(bucket), .trace, ownerHigh: UInt64(bucket) << 48, ownerLow: number)
    }

    private static func location(_ number: UInt64) -> ValueLocation {
        ValueLocation(block: 1, offset: UInt32(number), byteCount: 10)
    }

    @Test("the log finds the newest row of a key, only in its own table")
    func newestIsFound() {
        var log = YoungLog()
        log.append(Self.key(1), ticket: 1, at: Self.location(10))
        log.append(Self.key(2), ticket: 1, at: Self.location(20))
        log.append(Self.key(1), ticket: 2, at: Self.location(30))
        let (first, second) = (log.find(Self.key(1)), log.find(Self.key(2)))
        #expect(first?.offset == 30)
        #expect(second?.offset == 20)
        let other = log.find(StoreKey(Bucket(7), .request, ownerHigh: 7 << 48, ownerLow: 1))
        #expect(other == nil)
        let stranger = log.find(Self.key(1, bucket: 8))
        #expect(stranger == nil)
    }

    @Test("the log gives rows to the spiller in order, up to a ticket, each once")
    func collectedInOrder() {
        var log = YoungLog()
        for ticket in UInt64(1)...5 { log.append(Self.key(ticket), ticket: ticket, at: Self.location(ticket)) }
        var given: [UInt64] = []
        while let number = log.collect(upTo: 3) { given.append(log[number].pointee.ownerLow) }
        #expect(given == [1, 2, 3])
        while let number = log.collect(upTo: 9) { given.append(log[number].pointee.ownerLow) }
        #expect(given == [1, 2, 3, 4, 5])
    }

    @Test("a row is found until it is removed, in any order of removals, and a page is freed with its last row")
    func removedInAnyOrder() {
        var log = YoungLog()
        let count = UInt64(10_000)  // Several pages.
        for number in 0..<count {
            log.append(Self.key(number, bucket: UInt16(number % 5)), ticket: number + 1, at: Self.location(number))
        }
        for number in 0..<count { #expect(log.collect(upTo: .max) == number) }
        var order = Array(0..<count)
        var random = SeededGenerator(seed: 11)
        order.shuffle(using: &random)
        for (place, number) in order.enumerated() {
            log.remove(number)
            if place % 100 == 0 || place > 9_990 {
                let kept = order[place...].dropFirst().first
                if let kept {
                    let found = log.find(Self.key(kept, bucket: UInt16(kept % 5)))
                    #expect(found?.offset == UInt32(kept))
                }
                let gone = log.find(Self.key(number, bucket: UInt16(number % 5)))
                #expect(gone == nil)
            }
        }
        let rest = log.count
        #expect(rest == 0)
        // The log still works.
        log.append(Self.key(3), ticket: count + 1, at: Self.location(99))
        let found = log.find(Self.key(3))
        #expect(found?.offset == 99)
        #expect(log.collect(upTo: .max) == count)
    }
}
