internal import JSON

/// Distributes the jobs of lease answers and hook calls to the senders of their channels.
///
/// Confined to the sender's loop.
final class JobIntake {
    private let entries: [(sender: any ChannelSender, link: GatewayLink)]
    private let parser = HandoffJobReader.makeParser()
    /// Repeated hook calls whose jobs were already taken.
    var repeatedCalls: UInt64 = 0

    /// Creates an intake for at least one sender with its link.
    init(_ entries: [(sender: any ChannelSender, link: GatewayLink)]) {
        precondition(!entries.isEmpty, "an intake needs a sender")
        self.entries = entries
    }

    var register: JobRegister { entries[0].sender.register }

    /// Returns the index of a channel's sender, or 0 if the channel has none.
    private func place(of channel: String) -> Int {
        entries.firstIndex { $0.sender.register.channel.name == channel } ?? 0
    }

    func read(_ bytes: [UInt8]) throws(HandoffJobReader.Failure) -> HandoffJobReader {
        try HandoffJobReader(bytes, parser: parser)
    }

    /// Whether the senders of all channels in a hook call can hold more jobs.
    func hasRoom(for reader: HandoffJobReader) -> Bool {
        reader.channels.allSatisfy { entries[place(of: $0)].link.room > 0 }
    }

    /// Takes jobs; see `JobRegister.take`.
    ///
    /// Returns the number of new jobs of the channel that leased them. New jobs of other channels are counted in their links.
    func take(_ reader: HandoffJobReader, leasedBy channel: Channel?, lease: (HandoffJob) -> JobLease) -> Int {
        let leaser = place(of: channel?.name ?? "")
        entries[leaser].sender.register.metrics.jobsUnreadable += UInt64(reader.namelessCount)
        var jobs = [[HandoffJob]](repeating: [], count: entries.count)
        var unreadable = [[UnreadableJob]](repeating: [], count: entries.count)
        for job in reader.jobs { jobs[place(of: job.channel)].append(job) }
        for job in reader.unreadable { unreadable[place(of: job.channel)].append(job) }
        var leased = 0
        for (index, entry) in entries.enumerated() where !jobs[index].isEmpty || !unreadable[index].isEmpty {
            let register = entry.sender.register
            let count = register.take(jobs[index], unreadable: unreadable[index], lease: lease) { job in
                if job.channel == register.channel.name {
                    entry.sender.begin(job)
                } else {
                    register.giveBackWithoutCredential(job, "channel \(job.channel)")
                }
            }
            if channel != nil, index == leaser { leased = count } else { entry.link.took(count) }
        }
        return leased
    }
}
