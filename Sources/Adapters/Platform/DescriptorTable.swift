internal import CSystem
internal import Glibc

/// A thread's own table of descriptors: its limit of open files is its own, too, and its numbers mean nothing elsewhere.
package enum DescriptorTable {
    /// Gives the calling thread a table of its own and closes in it what it does not need.
    ///
    /// The new table begins as a copy. Files, folders and pipes are closed in it, since an open copy would keep a
    /// deleted file's space. All sockets but `kept` are closed, too: a listening socket that nobody accepts from would
    /// still be given its share of the connections. Standard streams and event descriptors stay.
    package static func makePrivate(keepingSockets kept: Set<CInt>) throws(SystemError) {
        guard longwire_unshare_descriptors() == 0 else { throw .last("unshare") }
        var visit = Visit(kept: kept, unneeded: [])
        let result = withUnsafeMutablePointer(to: &visit) { visit in
            longwire_each_descriptor(
                { context, descriptor, isSocket, isFile in
                    guard let visit = context?.assumingMemoryBound(to: Visit.self), descriptor > 2 else { return }
                    if isFile != 0 || isSocket != 0 && !visit.pointee.kept.contains(descriptor) {
                        visit.pointee.unneeded.append(descriptor)
                    }
                }, visit)
        }
        guard result == 0 else { throw .last("opendir", "/proc/thread-self/fd") }
        for descriptor in visit.unneeded { Glibc.close(descriptor) }
    }

    private struct Visit {
        let kept: Set<CInt>
        var unneeded: [CInt]
    }

    /// How many descriptors a table may hold: the soft limit, raised to the hard one as far as the system lets us.
    package static var capacity: Int {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return 1_024 }
        if limit.rlim_cur < limit.rlim_max {
            var raised = limit
            raised.rlim_cur = limit.rlim_max
            if setrlimit(resource, &raised) == 0 { limit = raised }
        }
        return limit.rlim_cur > UInt(Int32.max) ? Int(Int32.max) : Int(limit.rlim_cur)
    }
}

/// A way for connections from any thread into one, whatever tables they have: the kernel copies the descriptor along.
package final class DescriptorPassage: Sendable {
    /// For the receiving loop's poller.
    package let receiving: CInt
    package let sending: CInt

    package init() throws(SystemError) {
        var (receiving, sending): (CInt, CInt) = (-1, -1)
        guard longwire_message_pair(&receiving, &sending) == 0 else { throw .last("socketpair") }
        (self.receiving, self.sending) = (receiving, sending)
    }

    deinit {
        Glibc.close(receiving)
        Glibc.close(sending)
    }

    /// Sends a copy of `descriptor` with a word; `false` when the receiver is too far behind.
    package func send(_ word: UInt64, with descriptor: CInt) -> Bool {
        longwire_send_descriptor(sending, word, descriptor) == 0
    }

    /// The next word and its descriptor, which is -1 when this thread's table was full; `nil` when nothing waits.
    package func receive() -> (word: UInt64, descriptor: CInt)? {
        var word: UInt64 = 0
        var descriptor: CInt = -1
        return longwire_receive_descriptor(receiving, &word, &descriptor) == 1 ? (word, descriptor) : nil
    }
}
