internal import Delivery
internal import Wire

/// The partitions that may have due jobs, by channel, as far as one loop knows.
///
/// A partition may have some until its answer to a lease says that none are left. What it reports between the question and the
/// answer outweighs the answer, whichever comes first.
struct DuePartitions {
    private struct Entry {
        var mayHave = true
        /// How often the partition reported jobs.
        var reports: UInt32 = 0
    }

    private var entries: PerChannel<[Entry]>
    private var next = 0
    private let count: Int

    /// Seconds after which a partition is asked again: a report may be lost with its gateway.
    static let suspicionSeconds = 16

    init(count: Int) {
        self.count = count
        entries = PerChannel { _ in Array(repeating: Entry(), count: count) }
    }

    func mayHave(_ partition: Int, _ channel: VendorChannel) -> Bool { entries[channel][partition].mayHave }
    func reports(of partition: Int, _ channel: VendorChannel) -> UInt32 { entries[channel][partition].reports }

    /// A partition has due jobs of these channels where it had none.
    mutating func reported(_ partition: Int, _ channels: ChannelSet) {
        guard 0..<count ~= partition else { return }
        for channel in VendorChannel.allCases where channels.contains(ChannelSet(channel)) {
            entries[channel][partition].mayHave = true
            entries[channel][partition].reports &+= 1
        }
    }

    /// A partition had no due jobs left when it answered a question; `reports`: of the time of the question.
    mutating func drained(_ partition: Int, _ channel: VendorChannel, reports: UInt32) {
        guard entries[channel][partition].reports == reports else { return }
        entries[channel][partition].mayHave = false
    }

    /// Suspects the next partitions of jobs; about once a second.
    mutating func suspectNext() {
        for _ in 0..<(count + Self.suspicionSeconds - 1) / Self.suspicionSeconds {
            next = (next + 1) % count
            for channel in VendorChannel.allCases { entries[channel][next].mayHave = true }
        }
    }
}
