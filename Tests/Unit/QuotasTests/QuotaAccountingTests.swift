import Delivery
import Testing
import Wire

@testable import Quotas

@Suite struct QuotaAccountingTests {
    private static let app = AppKey(1)

    private func quotas(_ pairs: [(Quota, Int)]) -> AppQuotas {
        var quotas = AppQuotas()
        for (quota, limit) in pairs { quotas[quota] = limit }
        return quotas
    }

    @Test func aRateHasASecondsWorthAtOnceAndThenTheRate() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 10)])
        func take(_ now: Int64, _ count: Int = 1) -> QuotaRefusal? {
            book.take(app: Self.app, publishes: count, byteCount: 0, quotas: quotas, now: now)
        }
        for _ in 0..<10 { #expect(take(5_000) == nil) }
        #expect(take(5_000) == QuotaRefusal(quota: .publishesPerSecond, retryAfterSeconds: 1))
        // Less than a second's worth is unpaid.
        #expect(take(5_001) == nil)
        #expect(take(5_100) != nil)
        #expect(take(5_101) == nil)
        // A call for more than the remainder is accepted, and its debt delays the next one.
        #expect(take(60_000, 40) == nil)
        #expect(take(62_900)?.retryAfterSeconds == 1)
        #expect(take(60_500)?.retryAfterSeconds == 3)
        #expect(take(63_001) == nil)
    }

    @Test func aRefusedCallCountsNothing() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 1_000), (.requestBytesPerSecond, 100)])
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 100, quotas: quotas, now: 1_000) == nil)
        for _ in 0..<2_000 {
            let refusal = book.take(app: Self.app, publishes: 1, byteCount: 1, quotas: quotas, now: 1_000)
            #expect(refusal?.quota == .requestBytesPerSecond)
        }
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 1, quotas: quotas, now: 2_000) == nil)
    }

    @Test func whatThereIsCountsOverAllParts() {
        var book = QuotaAccounting()
        let quotas = quotas([(.devices, 10), (.queuedMessages, 5)])
        book.note(part: 0, [Self.app: QuotaHolding(devices: 6, queued: 7)])
        book.note(part: 1, [Self.app: QuotaHolding(devices: 3, queued: -3)])
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1) == nil)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 3, quotas: quotas) == true)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 4, quotas: quotas) == false)
        book.note(part: 1, [Self.app: QuotaHolding(devices: 4, queued: -2)])
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1)?.quota == .queuedMessages)
        let usage = book.usage(of: Self.app, quotas: quotas, now: 1)
        #expect(usage.map { $0.quota } == [Quota.devices, .queuedMessages])
        #expect(usage.map { $0.used } == [10, 5])
        #expect(usage.map { $0.refused } == [1, 1])
        let (report, again) = (book.takeReport(), book.takeReport())
        #expect(report.count == 2)
        #expect(again.isEmpty)
        book.forget(part: 0)
        #expect(book.admitsDevice(app: Self.app, part: 1, connected: 4, quotas: quotas) == true)
    }

    @Test func devicesLetInTogetherAreCountedAgainBeforeTheirWelcome() {
        var book = QuotaAccounting()
        let quotas = quotas([(.devices, 5)])
        book.note(part: 1, [Self.app: QuotaHolding(devices: 2, queued: 0)])
        // Four Hellos wait for the disk together, and each reserves a place.
        for _ in 0..<4 { #expect(book.admitsDevice(app: Self.app, part: 0, connected: 0, quotas: quotas) == true) }
        var connected = 4
        while book.hasSurplusDevice(app: Self.app, part: 0, connected: connected, quotas: quotas) { connected -= 1 }
        #expect(connected == 3)
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.used } == [5])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.refused } == [1])
        #expect(book.hasSurplusDevice(app: Self.app, part: 0, connected: 9, quotas: AppQuotas()) == false)
    }

    @Test func ofTwoPartsWithADeviceForOnePlaceOneKeepsIts() {
        var book = QuotaAccounting()
        let quotas = quotas([(.devices, 5)])
        func tell(_ part: Int, _ count: Int) {
            book.note(part: part, [Self.app: QuotaHolding(devices: count, queued: 0)])
        }
        for part in 0..<2 { tell(part, 2) }
        // Both Hellos see the place as free, and both partitions report their devices before a Welcome.
        for part in 0..<2 {
            #expect(book.admitsDevice(app: Self.app, part: part, connected: 2, quotas: quotas) == true)
        }
        for part in 0..<2 { tell(part, 3) }
        #expect(book.hasSurplusDevice(app: Self.app, part: 0, connected: 3, quotas: quotas) == true)
        #expect(book.hasSurplusDevice(app: Self.app, part: 1, connected: 3, quotas: quotas) == false)
        // The partition whose device is removed no longer reports it.
        tell(0, 2)
        #expect(book.hasSurplusDevice(app: Self.app, part: 1, connected: 3, quotas: quotas) == false)
        #expect(book.admitsDevice(app: Self.app, part: 0, connected: 2, quotas: quotas) == false)
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.used } == [5])
    }

    @Test func severalGatewaysGrantAnEvenShare() {
        var book = QuotaAccounting()
        book.gatewayCount = 3
        let quotas = quotas([(.publishesPerSecond, 10), (.devices, 10), (.queuedMessages, 1)])
        book.note(part: 0, [Self.app: QuotaHolding(devices: 0, queued: 100)])
        var granted = 0
        for _ in 0..<20 where book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1) == nil {
            granted += 1
        }
        #expect(granted == 4)
        // A device belongs to one partition, which only its gateway can use, so each gateway grants four more, or a quarter.
        #expect(book.admitsDevice(app: Self.app, part: 0, connected: 7, quotas: quotas) == true)
        #expect(book.admitsDevice(app: Self.app, part: 0, connected: 8, quotas: quotas) == false)
        let usage = book.usage(of: Self.app, quotas: quotas, now: 1)
        #expect(usage.map { $0.limit } == [10, 10, 1])
        #expect(usage.map { $0.share } == [8, 4, nil])
        let refusal = book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1)
        #expect(refusal?.share == 4)
        #expect(refusal?.reason.contains("whose share is 4") == true)
        // Never more than the whole quota.
        book.gatewayCount = 2
        #expect(book.usage(of: Self.app, quotas: self.quotas([(.devices, 3)]), now: 1).map { $0.share } == [3])
        book.gatewayCount = 1
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.share } == [nil, nil, nil])
    }

    @Test func sumsFollowEachPartThroughNotesMovesAndForgottenApps() {
        var book = QuotaAccounting()
        let (other, quotas) = (AppKey(2), quotas([(.devices, 1_000), (.queuedMessages, 1_000)]))
        var random = SystemRandomNumberGenerator()
        var parts: [Int: [AppKey: QuotaHolding]] = [:]
        for step in 0..<2_000 {
            let part = Int.random(in: 0..<5, using: &random)
            switch step % 4 {
            case 0:
                book.forget(part: part)
                parts[part] = nil
            case 1:
                let count = Int.random(in: 0..<40, using: &random)
                _ = book.admitsDevice(app: Self.app, part: part, connected: count, quotas: quotas)
                parts[part, default: [:]][Self.app, default: QuotaHolding(devices: 0, queued: 0)].devices = count
            default:
                var noted = [
                    Self.app: QuotaHolding(devices: step % 7, queued: Int.random(in: -20..<50, using: &random))
                ]
                if step % 3 == 0 { noted[other] = QuotaHolding(devices: 1, queued: 2) }
                book.note(part: part, noted)
                parts[part] = noted
            }
            if step % 50 == 0 { book.keep { $0 == Self.app } }
            for app in [Self.app, other] {
                let (devices, queued) = parts.values.reduce((0, 0)) {
                    ($0.0 + ($1[app]?.devices ?? 0), $0.1 + ($1[app]?.queued ?? 0))
                }
                #expect(book.usage(of: app, quotas: quotas, now: 1).map { $0.used } == [devices, max(0, queued)])
            }
        }
    }

    @Test func severalGatewaysFillAQueueTogether() {
        // A call at one gateway fills another's queue. Each gateway reports four times a second, at its own moment.
        let (limit, quotas) = (600, quotas([(.queuedMessages, 600)]))
        var (books, ledger) = (Array(repeating: QuotaAccounting(), count: 3), QueueLedger())
        // Another gateway's partition counts messages that the third gateway ended on earlier days. Only the sum is right.
        var counts = [0, 90, -60]
        for node in books.indices { books[node].gatewayCount = 3 }
        let one = self.quotas([(.queuedMessages, 1)])
        #expect(books[1].storeRefusal(app: Self.app, quotas: one, now: 0) == nil, "no word yet")
        var (most, call) = (0, 0)
        for now in stride(from: Int64(0), to: 60_000, by: 10) {
            for node in books.indices {
                if now % 50 == 0 {
                    books[node].note(part: node, [Self.app: QuotaHolding(devices: 0, queued: counts[node])])
                }
                if now % 250 == Int64(node) * 80 {
                    let elsewhere = ledger.take(books[node].queues(of: [Self.app]), of: node, now: now)
                    #expect((elsewhere == nil) == (now < QueueLedger.beginMilliseconds))
                    if let elsewhere { books[node].hear(elsewhere, now: now) }
                }
                guard now >= 1_500, now % 50 == Int64(node) * 10 else { continue }
                call += 1
                if books[node].take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: now) == nil {
                    counts[call % 3] += 1
                }
            }
            most = max(most, counts.reduce(0, +))
        }
        // Sixty a second: calls within twice the exchange interval, and a tick.
        #expect(limit...limit + 34 ~= most)
        for node in books.indices {
            #expect(books[node].storeRefusal(app: Self.app, quotas: quotas, now: 60_000)?.quota == .queuedMessages)
            #expect(books[node].usage(of: Self.app, quotas: quotas, now: 60_000).map { $0.used } == [most])
        }
        // Room that appears at one gateway is available at the others after the next exchange.
        counts[1] -= 300
        books[1].note(part: 1, [Self.app: QuotaHolding(devices: 0, queued: counts[1])])
        for node in [1, 0] {
            let elsewhere = ledger.take(books[node].queues(of: [Self.app]), of: node, now: 60_500)
            books[node].hear(elsewhere ?? [], now: 60_500)
        }
        #expect(books[0].storeRefusal(app: Self.app, quotas: quotas, now: 60_500) == nil)
        // A silent gateway has left, and others report its partitions.
        let told = [AppQueue(app: Self.app, count: 1)]
        #expect(ledger.take(told, of: 0, now: 70_000) == nil, "it counts anew")
        #expect(ledger.take(told, of: 0, now: 71_000)?.map { $0.count } == [0])
        #expect(AppQueue(app: Self.app, count: .max).isSound == false)
    }

    @Test func bytesOfAQueueAreHeldWithFewMessagesInIt() {
        var (book, ledger) = (QuotaAccounting(), QueueLedger())
        let quotas = quotas([(.queuedMessages, 100), (.queuedBytes, 50_000)])
        book.note(part: 0, [Self.app: QuotaHolding(devices: 0, queued: 3, queuedBytes: 49_999)])
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1) == nil)
        book.note(part: 1, [Self.app: QuotaHolding(devices: 0, queued: 1, queuedBytes: 1)])
        let refusal = book.take(app: Self.app, publishes: 1, byteCount: 9, quotas: quotas, now: 1)
        #expect(refusal?.quota == .queuedBytes && refusal?.reason.contains("quota queuedBytes") == true)
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.used } == [4, 50_000])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.refused } == [0, 1])
        // A reload raises the quota, and a message's end makes room.
        #expect(book.storeRefusal(app: Self.app, quotas: self.quotas([(.queuedBytes, 50_001)]), now: 1) == nil)
        book.note(part: 0, [Self.app: QuotaHolding(devices: 0, queued: 2, queuedBytes: 30_000)])
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1) == nil)
        book.note(part: 1, [Self.app: QuotaHolding(devices: 0, queued: 0, queuedBytes: 0)])
        // Each of several gateways counts the usage of all.
        book.gatewayCount = 3
        book.note(part: 0, [Self.app: QuotaHolding(devices: 0, queued: 5, queuedBytes: 20_000)])
        #expect(ledger.take([AppQueue(app: Self.app, count: 9)], of: 1, now: 0) == nil)
        #expect(ledger.take([AppQueue(app: Self.app, count: 2, bytes: 30_000)], of: 2, now: 0) == nil)
        for _ in 0..<2 { book.hear(ledger.take(book.queues(of: [Self.app]), of: 3, now: 1_000) ?? [], now: 1_000) }
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1_000).map { $0.used } == [16, 50_000])
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1_000)?.quota == .queuedBytes)
        book.hear([AppQueue(app: Self.app, count: 96)], now: 2_000)
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 2_000)?.quota == .queuedMessages)
        book.hear([AppQueue(app: Self.app, count: 11)], now: 3_000)
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 3_000) == nil)
        // A temporary excess over the largest bound is far below the wrap-around of the sums.
        #expect(Quota.queuedBytes.largest <= QueuedBlocks.byteCountLimit / 2 + 64)
        #expect(AppQueue(app: Self.app, count: 1, bytes: .min).isSound == false)
    }

    @Test func whatAnAppHasOnDiskIsHeldForPublishesAndNewDevices() {
        var book = QuotaAccounting()
        let quotas = quotas([(.storedBytes, 50_000)])
        func note(_ part: Int, queued: Int, bytes: Int, retained: Int) {
            let holding = QuotaHolding(devices: 0, queued: queued, queuedBytes: bytes, retainedBytes: retained)
            book.note(part: part, [Self.app: holding])
        }
        note(0, queued: 2, bytes: 20_000, retained: 29_999)
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1) == nil)
        #expect(book.registrationRefusal(app: Self.app, quotas: quotas, now: 1) == nil)
        // A partition without bucket 0 may report a negative number for devices that registered long ago. Only the sum counts.
        note(1, queued: 0, bytes: 0, retained: -9_999)
        note(2, queued: 0, bytes: 0, retained: 10_000)
        let refusal = book.take(app: Self.app, publishes: 1, byteCount: 9, quotas: quotas, now: 1)
        #expect(refusal?.quota == .storedBytes && refusal?.retryAfterSeconds == 60)
        #expect(book.registrationRefusal(app: Self.app, quotas: quotas, now: 1)?.quota == .storedBytes)
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1).map { $0.used } == [50_000])
        // The other quotas refuse no registration.
        let others = self.quotas([(.queuedMessages, 1), (.queuedBytes, 1)])
        #expect(book.registrationRefusal(app: Self.app, quotas: others, now: 1) == nil)
        book.gatewayCount = 2
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1) == nil, "no word yet")
        for _ in 0..<2 { book.hear([AppQueue(app: Self.app, count: 0, bytes: 0, retainedBytes: -1)], now: 2) }
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 2) == nil)
        book.hear([AppQueue(app: Self.app, count: 1, bytes: 0, retainedBytes: 0)], now: 3)
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 3)?.quota == .storedBytes)
        #expect(AppQueue(app: Self.app, count: 1, retainedBytes: .max).isSound == false)
        #expect(Quota.storedBytes.largest < 1 << 48)
    }

    @Test func aPartThatMovesCountsNeitherTwiceNorMakesAQuotaLookUsedUp() {
        // Part 0 has most of the app's data: 60 of 100.
        let quotas = quotas([(.storedBytes, 100_000)])
        var (books, ledgers) = (Array(repeating: QuotaAccounting(), count: 2), [QueueLedger(), QueueLedger()])
        for node in books.indices { books[node].gatewayCount = 2 }
        func note(_ node: Int, _ part: Int, _ bytes: Int) {
            books[node].note(part: part, [Self.app: QuotaHolding(devices: 0, queued: 0, retainedBytes: bytes)])
        }
        var owner = 0
        for now in stride(from: Int64(0), to: 8_000, by: 50) {
            if now == 4_000 {
                // The partition moves. Its former gateway learns the value with the next tick.
                owner = 1
                ledgers[1] = QueueLedger()
                books[0].forget(part: 0)
            }
            note(0, 1, 1_000)
            note(1, 2, 1_000)
            note(owner, 0, 60_000)
            for node in books.indices where now % 250 == Int64(node) * 100 {
                let answer = ledgers[owner].take(books[node].queues(of: [Self.app]), of: node, now: now)
                if let answer { books[node].hear(answer, now: now) }
            }
            for node in books.indices {
                let refusal = books[node].storeRefusal(app: Self.app, quotas: quotas, now: now)
                #expect(refusal == nil, "at \(now)")
                let isSettled = 2_000..<4_000 ~= now || now >= 6_000
                let used = books[node].usage(of: Self.app, quotas: quotas, now: now).map { $0.used }
                if isSettled { #expect(used == [62_000], "at \(now)") }
            }
        }
    }

    @Test func theLongerOfTwoWaitsIsTold() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 10), (.requestBytesPerSecond, 1_000)])
        func take(_ now: Int64) -> QuotaRefusal? {
            book.take(app: Self.app, publishes: 30, byteCount: 20_000, quotas: quotas, now: now)
        }
        #expect(take(1_000) == nil)
        #expect(take(1_000) == QuotaRefusal(quota: .requestBytesPerSecond, retryAfterSeconds: 20))
        #expect(book.usage(of: Self.app, quotas: quotas, now: 1_000).map { $0.refused } == [0, 1])
    }

    @Test func whatNobodyTellsAnewIsForgotten() {
        var book = QuotaAccounting()
        book.gatewayCount = 2
        let quotas = quotas([(.queuedMessages, 5)])
        book.hear([AppQueue(app: Self.app, count: 9)], now: 10_000)
        let last = 10_000 + QueueLedger.silenceMilliseconds - 1
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: last)?.quota == .queuedMessages)
        #expect(book.usage(of: Self.app, quotas: quotas, now: last).map { $0.used } == [9])
        // The owner of part 0 no longer answers, as if it had never answered.
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: last + 1) == nil)
        book.note(part: 1, [Self.app: QuotaHolding(devices: 0, queued: 7)])
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: last + 1) == nil)
        #expect(book.usage(of: Self.app, quotas: quotas, now: last + 1).map { $0.used } == [7])
        for _ in 0..<2 { book.hear([AppQueue(app: Self.app, count: 0)], now: 60_000) }
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 60_000)?.quota == .queuedMessages)
    }

    @Test func theLargestNumbersOfManyGatewaysAreAnsweredWithinTheLimit() {
        var ledger = QueueLedger()
        for (count, now) in [(Int.max, Int64(1_000)), (-Int.max, Int64(2_000)), (Int.max, Int64(3_000))] {
            let queue = AppQueue(app: Self.app, count: count, bytes: count, retainedBytes: count)
            for node in 1...100 {
                let answer = ledger.take([queue], of: node, now: now)
                #expect((answer?.count ?? 0) == (now < 2_000 ? 0 : 1))
                #expect(answer?.allSatisfy { $0.isSound } != false)
            }
        }
    }

    @Test func noMoreGatewaysAreCountedThanAClusterHas() {
        var ledger = QueueLedger()
        let (limit, told) = (QueueLedger.gatewayLimit, [AppQueue(app: Self.app, count: 1)])
        for node in 1...limit + 10 { _ = ledger.take(told, of: node, now: 0) }
        #expect(ledger.take(told, of: limit + 1, now: 1_000)?.map { $0.count } == [limit])
        // A gateway that is counted reports again.
        #expect(ledger.take(told, of: 1, now: 1_000)?.map { $0.count } == [limit - 1])
        #expect(ledger.take(told, of: limit + 1, now: 1_000)?.map { $0.count } == [limit])
    }

    @Test func aLargeCallIsPaidForForAMinuteAtMost() {
        var book = QuotaAccounting()
        let quotas = quotas([(.requestBytesPerSecond, 1_000)])
        func take(_ now: Int64) -> QuotaRefusal? {
            book.take(app: Self.app, publishes: 1, byteCount: 8 << 20, quotas: quotas, now: now)
        }
        #expect(take(1_000) == nil)
        #expect(take(1_000)?.retryAfterSeconds == 60)
        #expect(take(59_900) != nil)
        #expect(take(60_001) == nil)
    }

    @Test func aBoundThatChangesPricesAnewWhatIsNotPaid() {
        var book = QuotaAccounting()
        func take(_ rate: Int, _ count: Int, _ now: Int64) -> QuotaRefusal? {
            book.take(
                app: Self.app, publishes: count, byteCount: 0, quotas: quotas([(.publishesPerSecond, rate)]), now: now)
        }
        #expect(take(10, 400, 1_000) == nil)
        #expect(take(10, 1, 1_000)?.retryAfterSeconds == 40)
        #expect(take(100, 1, 1_000)?.retryAfterSeconds == 4)
        #expect(take(1_000, 1, 1_000) == nil)
        // The cost rises again, for a minute at most.
        #expect(take(1_000, 900, 1_000) == nil)
        #expect(take(1, 1, 1_000)?.retryAfterSeconds == 60)
        // With more gateways each pays slower.
        book.keep { _ in false }
        #expect(take(100, 400, 1_000) == nil)
        book.gatewayCount = 2
        #expect(take(100, 1, 1_000)?.retryAfterSeconds == 8)
    }

    @Test func anAppThatIsMadeAnewBeginsAnew() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 1)])
        for app in [Self.app, AppKey(2)] {
            #expect(book.take(app: app, publishes: 30, byteCount: 0, quotas: quotas, now: 1_000) == nil)
        }
        book.keep { $0 == AppKey(2) }
        #expect(book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 1_000) == nil)
        #expect(book.take(app: AppKey(2), publishes: 1, byteCount: 0, quotas: quotas, now: 1_000) != nil)
    }

    @Test func aFullQueueRefusesABroadcastAndNoRateDoes() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 1), (.queuedMessages, 5)])
        #expect(book.take(app: Self.app, publishes: 30, byteCount: 0, quotas: quotas, now: 1_000) == nil)
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1_000) == nil)
        book.note(part: 0, [Self.app: QuotaHolding(devices: 0, queued: 5)])
        #expect(book.storeRefusal(app: Self.app, quotas: quotas, now: 1_000)?.quota == .queuedMessages)
    }

    @Test func theLastWholeSecondIsShown() {
        var book = QuotaAccounting()
        let quotas = quotas([(.publishesPerSecond, 100)])
        for _ in 0..<30 { _ = book.take(app: Self.app, publishes: 1, byteCount: 0, quotas: quotas, now: 5_000) }
        #expect(book.usage(of: Self.app, quotas: quotas, now: 5_900).map { $0.used } == [0])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 6_100).map { $0.used } == [30])
        #expect(book.usage(of: Self.app, quotas: quotas, now: 7_100).map { $0.used } == [0])
    }
}
