internal import Delivery
internal import Wire

/// The partitions that may have due jobs, by channel, as known to one loop.
///
/// A partition may have due jobs until its answer to a lease request says that none are left. A report that arrives between the
/// request and its answer overrides the answer.
struct DuePartitions {
    private struct Entry {
        var mayHave = true
        var reports: UInt32 = 0
    }

    private var entries: PerChannel<[Entry]>
    private var next = 0
    private let count: Int

    /// The period in seconds after which each partition is asked again, because a report may be lost with its gateway.
    static let suspicionSeconds = 16

    init(count: Int) {
        self.count = count
        entries = PerChannel { _ in Array(repeating: Entry(), count: count) }
    }

    func mayHave(_ partition: Int, _ channel: VendorChannel) -> Bool { entries[channel][partition].mayHave }
    func reports(of partition: Int, _ channel: VendorChannel) -> UInt32 { entries[channel][partition].reports }

    mutating func reported(_ partition: Int, _ channels: ChannelSet) {
        guard 0..<count ~= partition else { return }
        for channel in VendorChannel.allCases where channels.contains(ChannelSet(channel)) {
            entries[channel][partition].mayHave = true
            entries[channel][partition].reports &+= 1
        }
    }

    /// Records that a partition had no due jobs left; `reports` is the report count when the question was sent.
    mutating func drained(_ partition: Int, _ channel: VendorChannel, reports: UInt32) {
        guard entries[channel][partition].reports == reports else { return }
        entries[channel][partition].mayHave = false
    }

    /// Marks the next partitions as possibly having jobs; called about once a second.
    mutating func suspectNext() {
        for _ in 0..<(count + Self.suspicionSeconds - 1) / Self.suspicionSeconds {
            next = (next + 1) % count
            for channel in VendorChannel.allCases { entries[channel][next].mayHave = true }
        }
    }
}
