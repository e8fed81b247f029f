// Asynchronous calls: one thread has several in flight, each on a separate connection, and sleeps until one can continue. A
// server in a `WAIT` runs no other command of that connection, so each call needs its own connection.

internal import Glibc
package import Platform

/// A connection with at most one call in flight; not `Sendable`: one thread creates and uses it.
package final class RedisPipe {
    package let address: RedisAddress
    private let cluster: RedisCluster
    private let connection: any RedisConnection
    private var commands: [RedisCommand] = []
    private var timeoutMilliseconds = 0
    /// The timeout of the call in flight, as a time in the network's milliseconds.
    package private(set) var deadline: UInt64 = .max
    package private(set) var isOpen = true

    /// Connects to a server.
    ///
    /// - Throws: the errors of `RedisNetwork.connect`.
    package init(to address: RedisAddress, of cluster: RedisCluster) throws(RedisError) {
        (self.address, self.cluster) = (address, cluster)
        do throws(RedisError) {
            connection = try cluster.network.connect(to: address, timeoutMilliseconds: Limits.connectMilliseconds)
        } catch {
            cluster.noteSilence(of: address)
            throw error
        }
    }

    package var isBusy: Bool { !commands.isEmpty }
    package var interest: RedisInterest? { connection.interest }

    /// Sends the commands of a call; no call may be in flight.
    ///
    /// - Throws: the errors of `RedisConnection.begin`. The pipe is closed then.
    package func begin(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) {
        precondition(!isBusy, "a pipe has one call under way")
        (self.commands, self.timeoutMilliseconds) = (commands, timeoutMilliseconds)
        deadline = cluster.network.monotonicMilliseconds + UInt64(max(timeoutMilliseconds, 1))
        do throws(RedisError) { try connection.begin(commands) } catch { throw end(error) }
    }

    /// Continues the call.
    ///
    /// - Returns: a reply for each command, including error replies, once all have arrived. The pipe is free then.
    /// - Throws: the errors of `RedisConnection.proceed`, and `.timedOut`. The pipe is closed then.
    package func proceed() throws(RedisError) -> [RedisReply]? {
        do throws(RedisError) {
            guard var replies = try connection.proceed() else {
                guard cluster.network.monotonicMilliseconds < deadline else {
                    throw .timedOut(address, milliseconds: timeoutMilliseconds)
                }
                return nil
            }
            guard replies.count == commands.count else {
                throw .malformed(address, "\(replies.count) replies to \(commands.count) commands")
            }
            for (place, reply) in replies.enumerated() {
                guard let fault = reply.fault, fault.isOfRights else { continue }
                replies[place] = .error(fault.explained(commands[place]))
            }
            (commands, deadline) = ([], .max)
            return replies
        } catch { throw end(error) }
    }

    private func end(_ error: RedisError) -> RedisError {
        close()
        if case .timedOut = error { cluster.noteSilence(of: address) }
        return error
    }

    /// Whether the server closed the idle connection or sent unexpected bytes; it is `false` during a call.
    package var isBroken: Bool {
        guard !isBusy else { return false }
        guard isOpen, let descriptor = connection.interest?.descriptor else { return !isOpen }
        var byte: UInt8 = 0
        let count = recv(descriptor, &byte, 1, CInt(MSG_PEEK | MSG_DONTWAIT))
        return count >= 0 || (errno != EAGAIN && errno != EINTR)
    }

    package func close() {
        (commands, deadline, isOpen) = ([], .max, false)
        connection.close()
    }
}

/// A thread's wait for several connections, which another thread can interrupt.
package final class RedisPoller: Sendable {
    private let wakeup: Wakeup

    package init() throws(SystemError) { wakeup = try Wakeup() }

    /// Interrupts the current sleep, or the next one; may be called from any thread.
    package func wake() { wakeup.signal() }

    /// - Parameters:
    ///   - interests: the sockets of connections with a call. A connection without a socket prevents sleeping.
    ///   - idle: the sockets of connections without a call, which should receive nothing.
    ///   - milliseconds: the longest sleep, or `nil` without a bound.
    /// - Returns: whether an idle connection received bytes or ended.
    package func sleep(
        for interests: [RedisInterest?], idle: [RedisInterest?] = [], atMostMilliseconds milliseconds: UInt64?
    ) -> Bool {
        var entries = [pollfd(fd: wakeup.descriptor, events: Int16(POLLIN), revents: 0)]
        var timeout = milliseconds.map { CInt(clamping: $0) } ?? -1
        for interest in interests {
            guard let interest else {
                timeout = 0
                continue
            }
            entries.append(pollfd(fd: interest.descriptor, events: interest.events, revents: 0))
        }
        let busyCount = entries.count
        for case let interest? in idle {
            entries.append(pollfd(fd: interest.descriptor, events: Int16(POLLIN), revents: 0))
        }
        let count = poll(&entries, nfds_t(entries.count), timeout)
        if count > 0, entries[0].revents != 0 { wakeup.clear() }
        return count > 0 && entries[busyCount...].contains { $0.revents != 0 }
    }
}
