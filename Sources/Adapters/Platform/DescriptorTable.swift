internal import CSystem
internal import Glibc

/// A thread's private file descriptor table; the limit of open files and the descriptors are valid per table.
package enum DescriptorTable {
    /// Gives the calling thread a private table and closes the descriptors it does not need.
    ///
    /// The table starts as a copy. Files, folders and pipes are closed, since an open copy would keep the space of a deleted
    /// file. All sockets except `kept` are closed, because the kernel would also assign connections to a copied listening socket.
    /// Standard streams and event descriptors stay open.
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

    /// The capacity of a table: the soft limit, raised to the hard limit if the system allows it.
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

/// A channel for passing connections from any thread to one thread with another table; the kernel copies the descriptor.
package final class DescriptorPassage: Sendable {
    /// The descriptor for the receiving loop's poller.
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

    /// Sends a copy of `descriptor` with a word; returns `false` if the channel's buffer is full.
    package func send(_ word: UInt64, with descriptor: CInt) -> Bool {
        longwire_send_descriptor(sending, word, descriptor) == 0
    }

    /// Returns the next word with its descriptor (-1 if this thread's table was full), or `nil` if no word is pending.
    package func receive() -> (word: UInt64, descriptor: CInt)? {
        var word: UInt64 = 0
        var descriptor: CInt = -1
        return longwire_receive_descriptor(receiving, &word, &descriptor) == 1 ? (word, descriptor) : nil
    }
}
