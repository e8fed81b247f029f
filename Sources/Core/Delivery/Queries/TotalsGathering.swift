internal import Wire

final class TotalsGathering {
    private struct Marks: OptionSet {
        let rawValue: UInt8
        static let sent = Marks(rawValue: 1)
        static let alerted = Marks(rawValue: 2)
        static let arrived = Marks(rawValue: 4)
        static let shownLive = Marks(rawValue: 8)
        static let shownVendor = Marks(rawValue: 16)
        static let clickedLive = Marks(rawValue: 32)
        static let clickedVendor = Marks(rawValue: 64)
    }

    private struct Message {
        var marks: Marks = []
        var vendor: VendorChannel?
    }

    private var totals = TaskTotals()
    /// The marks by bucket and 48 bits of the message's digest; a message's ledger and event rows share this key.
    private var marks: [UInt64: Message] = [:]

    static func place(_ bucket: Bucket, _ item: UInt64) -> UInt64 { item & ~0xFFFF | UInt64(bucket.index) }

    func take(_ row: LedgerRow, _ key: StoreKey) {
        totals.accepted += 1
        var found: Marks = []
        if let state = row.state {
            totals[state] += 1
            if state == .failed { totals.failures[row.reason, default: 0] += 1 }
            if row.flags.contains(.sent) { found.insert(.sent) }
            if row.flags.contains(.alerted) { found.insert(.alerted) }
            if state == .delivered || state == .deliveredOffline { found.insert(.arrived) }
            if state == .opened { found.formUnion([.alerted, .shownVendor, .clickedVendor]) }
        } else {
            if !row.flags.isDisjoint(with: [.live, .sent]) { found.insert(.sent) }
            if row.flags.contains(.alerted) { found.insert(.alerted) }
        }
        let place = Self.place(key.bucket, key.item)
        marks[place, default: Message()].marks.formUnion(found)
        marks[place]?.vendor = row.vendor
    }

    func take(_ row: TaskEventRow, _ key: StoreKey) {
        var found: Marks = []
        switch row.event {
        case .shown: found = row.isVendor ? .shownVendor : .shownLive
        case .opened: found = row.isVendor ? [.clickedVendor, .shownVendor] : .clickedLive
        case .alerted: found = .alerted
        case .action: totals.actions[row.action, default: 0] += 1
        }
        marks[Self.place(key.bucket, key.item), default: Message()].marks.formUnion(found)
    }

    func sum() -> TaskTotals {
        var sum = totals
        for message in marks.values {
            let mark = message.marks
            let isBack = !mark.isDisjoint(with: [.shownVendor, .clickedVendor])
            sum.live.sent += mark.contains(.sent) ? 1 : 0
            sum.live.received += mark.contains(.arrived) ? 1 : 0
            sum.live.shown += mark.contains(.shownLive) ? 1 : 0
            sum.live.clicked += mark.contains(.clickedLive) ? 1 : 0
            var vendor = TaskTotals.Channel()
            vendor.sent = mark.contains(.alerted) || isBack ? 1 : 0
            vendor.received = isBack ? 1 : 0
            vendor.shown = mark.contains(.shownVendor) ? 1 : 0
            vendor.clicked = mark.contains(.clickedVendor) ? 1 : 0
            sum.add(vendor, of: message.vendor)
            sum.all.sent += mark.isDisjoint(with: [.sent, .alerted]) && !isBack ? 0 : 1
            sum.all.received += mark.contains(.arrived) || isBack ? 1 : 0
            sum.all.shown += mark.isDisjoint(with: [.shownLive, .shownVendor]) ? 0 : 1
            sum.all.clicked += mark.isDisjoint(with: [.clickedLive, .clickedVendor]) ? 0 : 1
        }
        return sum
    }
}
