import Testing

@testable import LoadGenerator

@Suite("Message ledger")
struct MessageLedgerTests {
    @Test("a message is finished once it is answered and delivered, in either order", arguments: [true, false])
    func finishing(answerFirst: Bool) {
        var ledger = MessageLedger()
        let number = ledger.append(dueAt: 77, isMeasured: true)
        let first = answerFirst ? ledger.markAccepted(number) : ledger.markDelivered(number)
        let second = answerFirst ? ledger.markDelivered(number) : ledger.markAccepted(number)
        #expect(first == .first(.init(dueAt: 77, isMeasured: true, isFinished: false)))
        #expect(second == .first(.init(dueAt: 77, isMeasured: true, isFinished: true)))
        #expect(ledger.remainder() == .init())
    }

    @Test("a second delivery is a repeat, even long after its chunk was dropped")
    func repeats() {
        var ledger = MessageLedger()
        for _ in 0..<100_000 {
            let number = ledger.append(dueAt: 1, isMeasured: false)
            _ = ledger.markAccepted(number)
            _ = ledger.markDelivered(number)
        }
        for number: UInt64 in [0, 32_767, 32_768, 99_999] { #expect(ledger.markDelivered(number) == .repeated) }
        #expect(ledger.markDelivered(100_000) == .unknown)
        #expect(ledger.markDelivered(.max) == .unknown)
    }

    @Test("at the end messages without a result and accepted ones without delivery are distinguished")
    func remainder() {
        var ledger = MessageLedger()
        for _ in 0..<40_000 { _ = ledger.append(dueAt: 1, isMeasured: true) }
        for number in 0..<UInt64(39_000) { _ = ledger.markAccepted(number) }
        for number in 0..<UInt64(38_900) { _ = ledger.markDelivered(number) }
        #expect(ledger.remainder() == .init(unanswered: 1_000, undelivered: 100))
    }

    @Test("a refused message needs no delivery, even if it was delivered before")
    func refused() {
        var ledger = MessageLedger()
        let (plain, odd) = (ledger.append(dueAt: 1, isMeasured: true), ledger.append(dueAt: 2, isMeasured: true))
        #expect(ledger.markRefused(plain) == .first(.init(dueAt: 1, isMeasured: true, isFinished: true)))
        _ = ledger.markDelivered(odd)
        #expect(ledger.markRefused(odd) == .first(.init(dueAt: 2, isMeasured: true, isFinished: true)))
        #expect(ledger.markRefused(odd) == .repeated)
        #expect(ledger.remainder() == .init())
    }

    @Test("paced messages are due in ticks, never early, and keep their rate")
    func pace() {
        for number in 0..<2_000 as Range<UInt64> {
            let exact = Double(number) * 1e9 / 20_000
            let due = Pace.due(number, rate: 20_000)
            #expect(due % Limits.tickNanoseconds == 0)
            #expect(Double(due) >= exact && Double(due) < exact + Double(Limits.tickNanoseconds) + 1)
        }
    }
}
