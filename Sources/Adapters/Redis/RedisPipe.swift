// Calls that nobody waits for: a thread has many of them under way, each over a connection of its own, and sleeps until one
// of them can go on. A server that has come to a `WAIT` runs nothing more of that connection, so several calls of one
// connection would wait for each other there.

internal import Glibc
package import Platform

/// A connection with at most one call under way.
///
/// Not `Sendable`: made and used by one thread.
package final class RedisPipe {
    package let address: RedisAddress
    private let cluster: RedisCluster
    private let connection: any RedisConnection
    private var commands: [RedisCommand] = []
    private var timeoutMilliseconds = 0
    /// When the call under way is given up, in the network's milliseconds.
    package private(set) var deadline: UInt64 = .max
    package private(set) var isOpen = true

    /// Connects.
    ///
    /// - Throws: see `RedisNetwork.connect`.
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

    /// Sends the commands of a call; none is under way.
    ///
    /// - Throws: see `RedisConnection.begin`; the pipe is closed then.
    package func begin(_ commands: [RedisCommand], timeoutMilliseconds: Int) throws(RedisError) {
        precondition(!isBusy, "a pipe has one call under way")
        (self.commands, self.timeoutMilliseconds) = (commands, timeoutMilliseconds)
        deadline = cluster.network.monotonicMilliseconds + UInt64(max(timeoutMilliseconds, 1))
        do throws(RedisError) { try connection.begin(commands) } catch { throw end(error) }
    }

    /// Goes on with the call.
    ///
    /// - Returns: a reply for each command, error replies included, once all are there; the pipe is free then.
    /// - Throws: see `RedisConnection.proceed`, and `.timedOut`; the pipe is closed then.
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

    /// The server has ended the connection, or sent what nothing asked for; no call is under way.
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

/// Sleeps until one of several connections can go on, or another thread says so.
package final class RedisPoller: Sendable {
    private let wakeup: Wakeup

    package init() throws(SystemError) { wakeup = try Wakeup() }

    /// Ends a sleep, or the next one; from any thread.
    package func wake() { wakeup.signal() }

    /// - Parameters:
    ///   - interests: of the connections; with one that has no socket there is no sleep.
    ///   - idle: of connections without a call, on which nothing is to come.
    ///   - milliseconds: the longest sleep; `nil` for any.
    /// - Returns: whether something came on an idle one, or its end.
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
