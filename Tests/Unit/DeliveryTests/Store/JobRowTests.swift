import TestKit
import Testing
import Wire

@testable import Delivery

@Suite("Job rows") struct JobRowTests {
    private static func facts(_ random: inout SeededGenerator) -> MessageFacts {
        let accepted = Int64.random(in: 1_700_000_000_000...1_900_000_000_000, using: &random)
        let id = MessageID(bucket: Bucket(7), acceptedAt: accepted, digest: random.next())
        let isVendor = Bool.random(using: &random)
        let timeToLive = Int64.random(in: -1...3_600_000, using: &random)
        var facts = MessageFacts(
            message: id,
            task: TaskID(high: random.next() >> Int.random(in: 0...63, using: &random), low: random.next()),
            app: AppKey(random.next()), cid: DeviceID(high: random.next(), low: random.next()),
            strategy: [.liveElseVendor, .vendorOnly, .liveOnly, .vendorElseLive].randomElement(using: &random)!,
            flags: MessageFacts.Flags(rawValue: UInt8.random(in: 0...255, using: &random)),
            table: isVendor ? .vendorMessage : [.message, .broadcast].randomElement(using: &random)!,
            item: isVendor ? id.low : random.next() >> 40, acceptedAt: accepted,
            expiresAt: accepted + (Bool.random(using: &random) ? timeToLive : 77), fallbackAt: 0, wakeAt: 0,
            timeToLive: timeToLive, byteCount: UInt32.random(in: 0...40_000, using: &random))
        if Bool.random(using: &random) { facts.fallbackAt = accepted + 10_000 }
        if Bool.random(using: &random) { facts.acceptedAt += 1 }
        facts.channels = facts.flags.contains(.hasVendorContent) ? ChannelSet(.apns) : []
        facts.wakeAt = Bool.random(using: &random) ? facts.firstAlarm : facts.expiresAt + 5
        return facts
    }

    private static func row(_ random: inout SeededGenerator) -> JobRow {
        let facts = facts(&random)
        var row = JobRow(
            facts: facts, state: JobRow.State(rawValue: UInt8.random(in: 1...6, using: &random))!,
            dueAt: facts.acceptedAt + Int64.random(in: -5...90_000, using: &random))
        row.attempts = UInt16.random(in: 0...20, using: &random)
        for _ in 0..<Int.random(in: 0...4, using: &random) { row.give((random.next(), random.next())) }
        switch Int.random(in: 0..<3, using: &random) {
        case 0: row.lease = (0, 0)
        case 1: row.lease = (1, 2)
        default: break
        }
        if let settled = row.leases.randomElement(using: &random), Bool.random(using: &random) {
            row.settle(settled.id, .retry)
        } else if Bool.random(using: &random) {
            (row.settledLease, row.settledOutcome) = ((8, 9), 1)
        }
        if Bool.random(using: &random) { row.leasedUntil = facts.acceptedAt + 60_000 }
        if Bool.random(using: &random) { (row.sentToken, row.sentKind) = (random.next() | 1, .voip) }
        if Bool.random(using: &random) { row.alertedAt = facts.acceptedAt + 3 }
        if Bool.random(using: &random) { (row.badgeChange, row.badgeRound) = (-7, 200) }
        (row.badgeApplied, row.isCollapsed) = (Bool.random(using: &random), Bool.random(using: &random))
        (row.isBadgeTakenBack, row.isAlertCounted) = (Bool.random(using: &random), Bool.random(using: &random))
        for _ in 0..<Int.random(in: 0...5, using: &random) {
            row.note(.leased, facts.acceptedAt + Int64.random(in: -9...100_000, using: &random), "why")
        }
        return row
    }

    private static func bytes(_ row: JobRow) -> [UInt8] {
        var bytes = [UInt8](repeating: 0xEE, count: row.byteCount)
        bytes.withUnsafeMutableBytes { row.write(into: $0) }
        return bytes
    }

    @Test(
        "a row survives encoding with any fields, and no prefix of it is a valid row",
        arguments: 1...60 as ClosedRange<UInt64>)
    func everything(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<20 {
            let row = Self.row(&random)
            let bytes = Self.bytes(row)
            let read = try #require(bytes.withUnsafeBytes { JobRow($0) })
            // Rows are not Equatable, so the bytes of a copy and the text of each field are compared.
            #expect("\(read)" == "\(row)")
            #expect(Self.bytes(read) == bytes)
            for count in 0..<bytes.count {
                #expect(bytes[..<count].withUnsafeBytes { JobRow($0) } == nil)
            }
        }
    }

    @Test("a leased job takes 112 bytes")
    func size() {
        let accepted: Int64 = 1_795_000_000_000
        let id = MessageID(bucket: Bucket(7), acceptedAt: accepted, digest: 5)
        var facts = MessageFacts(
            message: id, task: TaskID(high: 1 << 56 | 1 << 48 | 1 << 40, low: 7), app: AppKey(6),
            cid: DeviceID(high: 7, low: 8), strategy: .liveElseVendor, flags: [.isArmed, .offline], table: .message,
            item: 100, acceptedAt: accepted, expiresAt: accepted + 7_200_000, fallbackAt: 0, wakeAt: 0,
            timeToLive: 7_200_000, byteCount: 500)
        facts.wakeAt = facts.firstAlarm
        var row = JobRow(impliedBy: facts)
        row.state = .leased
        row.attempts = 1
        row.give((1, 2))
        (row.leasedUntil, row.sentToken) = (accepted + 65_000, 9)
        row.note(.leased, accepted + 5_000)
        #expect(row.byteCount == 112)
    }
}
