internal import Synchronization

package struct RedisRequest: Sendable {
    package var command: RedisCommand
    package var slot: Int
    package init(_ command: RedisCommand, slot: Int) { (self.command, self.slot) = (command, slot) }
}

/// One thread's connections to the servers of a cluster; not `Sendable`: one thread creates and uses it.
package final class RedisClient {
    private struct Link {
        var connection: any RedisConnection
        var number: UInt64
    }

    package struct Attempt {
        package var replies: [RedisReply]
        package var address: RedisAddress
        /// The number of the connection, unique in this process; `WAIT` covers only writes of the same connection.
        package var connection: UInt64
    }

    package let cluster: RedisCluster
    private var links: [RedisAddress: Link] = [:]
    /// The last connection number of all clients, since a wait on one connection does not cover writes of another.
    private static let lastNumber = Atomic<UInt64>(0)

    package init(_ cluster: RedisCluster) { self.cluster = cluster }

    private var network: any RedisNetwork { cluster.network }

    package func close() {
        for link in links.values { link.connection.close() }
        links.removeAll()
    }

    // MARK: One server

    /// Runs commands at one server.
    ///
    /// - Parameters:
    ///   - commands: sent together and run in order.
    ///   - address: the server, to which a connection is opened if needed.
    ///   - timeoutMilliseconds: the timeout for all replies.
    ///   - connection: the only connection that may be used (`Attempt.connection`), or `nil` for any.
    /// - Returns: a reply for each command, including error replies.
    /// - Throws: the errors of `RedisConnection.run`. `.broken` without sending anything if the given connection no longer
    ///   exists.
    package func exchange(
        _ commands: [RedisCommand], at address: RedisAddress, timeoutMilliseconds: Int = Limits.commandMilliseconds,
        on connection: UInt64? = nil
    ) throws(RedisError) -> Attempt {
        if let connection, links[address]?.number != connection {
            throw .broken(address, "it is another connection now")
        }
        let link = try link(to: address, min(timeoutMilliseconds, Limits.connectMilliseconds))
        do throws(RedisError) {
            var replies = try link.connection.run(commands, timeoutMilliseconds: timeoutMilliseconds)
            guard replies.count == commands.count else {
                throw .malformed(address, "\(replies.count) replies to \(commands.count) commands")
            }
            try sendScripts(commands, &replies, link, timeoutMilliseconds)
            for (place, reply) in replies.enumerated() {
                guard let fault = reply.fault, fault.isOfRights else { continue }
                replies[place] = .error(fault.explained(commands[place]))
            }
            cluster.noteAnswer(of: address)
            return Attempt(replies: replies, address: address, connection: link.number)
        } catch {
            link.connection.close()
            if links[address]?.number == link.number { links[address] = nil }
            if case .timedOut = error { cluster.noteSilence(of: address) }
            throw error
        }
    }

    private func link(to address: RedisAddress, _ timeoutMilliseconds: Int) throws(RedisError) -> Link {
        if let link = links[address] { return link }
        let connection: any RedisConnection
        do throws(RedisError) {
            connection = try network.connect(to: address, timeoutMilliseconds: timeoutMilliseconds)
        } catch {
            cluster.noteSilence(of: address)
            throw error
        }
        let number = Self.lastNumber.add(1, ordering: .relaxed).newValue
        let link = Link(connection: connection, number: number)
        links[address] = link
        return link
    }

    /// Resends scripts, with their source, that the server does not have; their order among the commands must not matter.
    private func sendScripts(
        _ commands: [RedisCommand], _ replies: inout [RedisReply], _ link: Link, _ timeoutMilliseconds: Int
    ) throws(RedisError) {
        let missing = replies.indices.filter { replies[$0].fault?.kind == .noScript && commands[$0].script != nil }
        guard !missing.isEmpty else { return }
        // A wait after a missing script ended before the script ran, so it does not cover the script's writes. `SET` is the write
        // that precedes a wait (`touchCommand`).
        let waits = commands.indices.filter {
            $0 > missing[0] && ["SET", "WAIT", "WAITAOF"].contains(commands[$0].name)
        }
        let places = missing + waits
        // `ASKING` applies to one command, so each resent command needs its own.
        var again: [RedisCommand] = []
        var targets: [Int?] = []
        for place in places {
            if place > 0, commands[place - 1].name == "ASKING" {
                again.append(commands[place - 1])
                targets.append(nil)
            }
            again.append(commands[place].withSource)
            targets.append(place)
        }
        let answers = try link.connection.run(again, timeoutMilliseconds: timeoutMilliseconds)
        for case (let place?, let reply) in zip(targets, answers) { replies[place] = reply }
    }

    // MARK: One slot

    /// Makes one attempt to run commands at the slot's server and follows redirects.
    ///
    /// All commands are resent only if the first one was redirected, since then none has run.
    ///
    /// - Parameters:
    ///   - commands: the first has the slot's key.
    ///   - slot: the slot of the keys.
    ///   - timeoutMilliseconds: the timeout for the replies of one server.
    ///   - deadline: the end of the attempt including redirects and map requests, in the network's milliseconds.
    /// - Returns: the replies, including error replies.
    /// - Throws: when no server is known or its connection breaks. The commands may have run.
    package func attempt(
        _ commands: [RedisCommand], slot: Int, timeoutMilliseconds: Int = Limits.commandMilliseconds,
        deadline: UInt64 = .max
    ) throws(RedisError) -> Attempt {
        // Another thread may be requesting the map. An unknown map does not mean that the slot has no server.
        while !cluster.isKnown, network.monotonicMilliseconds < deadline { try askForMap(until: deadline) }
        var target = cluster.primary(of: slot)
        var isAsking = false
        var last: Attempt?
        for _ in 0...Limits.redirectCount {
            guard let address = target else {
                throw .noOwner(slot: slot, Self.reason(hasMap: cluster.isKnown))
            }
            let now = network.monotonicMilliseconds
            guard now < deadline else {
                guard let last else { throw .timedOut(address, milliseconds: 0) }
                return last
            }
            // `ASKING` applies to the next command only.
            var attempt = try exchange(
                isAsking ? commands.flatMap { [RedisCommand("ASKING"), $0] } : commands, at: address,
                timeoutMilliseconds: min(timeoutMilliseconds, Int(clamping: deadline - now)))
            if isAsking { attempt.replies = commands.indices.map { attempt.replies[2 * $0 + 1] } }
            guard let next = redirect(attempt.replies[0], from: address) else { return attempt }
            (target, isAsking) = next
            last = attempt
        }
        guard let last else { throw .noOwner(slot: slot, "no server was asked") }
        return last
    }

    /// Returns the new target of a redirected command, or `nil` for any other reply; a MOVED reply also updates the map.
    package func redirect(_ reply: RedisReply, from server: RedisAddress) -> (RedisAddress?, isAsking: Bool)? {
        guard let fault = reply.fault else { return nil }
        func resolve(_ address: RedisAddress?) -> RedisAddress? {
            guard var address else { return nil }
            if address.host.isEmpty { address.host = server.host }
            return address
        }
        switch fault.kind {
        case .moved(let slot, let address):
            let address = resolve(address)
            if let address { cluster.note(slot: slot, at: address) }
            return (address, false)
        case .ask(_, let address): return (resolve(address), true)
        default: return nil
        }
    }

    // MARK: Many slots

    /// Runs commands that may run more than once, until each has a final reply.
    ///
    /// The commands of one server are sent together, in their order. Transient errors and broken connections are retried.
    ///
    /// - Parameters:
    ///   - requests: idempotent commands.
    ///   - isDurable: whether each server's commands are followed by a wait for its replicas, at least `minReplicas`.
    ///   - minReplicas: the minimum number of replicas, even if the map has fewer.
    ///   - deadline: the end of all retries, in the network's milliseconds.
    ///   - isImpatient: whether to stop retrying once only unresponsive servers are left, or once a server rejects writes for
    ///     lack of memory, disk or replicas.
    /// - Returns: a reply for each request, including permanent error replies.
    /// - Throws: the last failure at the deadline. Some commands have run then.
    package func run(
        _ requests: [RedisRequest], isDurable: Bool = false, minReplicas: Int = 0, deadline: UInt64,
        isImpatient: Bool = false
    ) throws(RedisError) -> [RedisReply] {
        var replies = [RedisReply?](repeating: nil, count: requests.count)
        var pending = Array(requests.indices)
        var pause = Limits.retryMilliseconds
        var redirects = 0
        // A server's error reply is more specific than a later timeout.
        var refusal: RedisError?
        while !pending.isEmpty {
            var failure: RedisError?
            if !cluster.isKnown {
                do throws(RedisError) { try askForMap(until: deadline) } catch { failure = error }
            }
            var byServer: [(address: RedisAddress, places: [Int])] = []
            for place in pending {
                guard let address = cluster.primary(of: requests[place].slot) else {
                    failure =
                        failure ?? .noOwner(slot: requests[place].slot, Self.reason(hasMap: cluster.isKnown))
                    continue
                }
                if let known = byServer.firstIndex(where: { $0.address == address }) {
                    byServer[known].places.append(place)
                } else {
                    byServer.append((address, [place]))
                }
            }
            // Unresponsive servers are asked last, because they may use up the remaining time.
            byServer =
                byServer.filter { !cluster.isSilent($0.address) } + byServer.filter { cluster.isSilent($0.address) }
            let before = pending.count
            for (address, places) in byServer {
                do throws(RedisError) {
                    let fault = try run(
                        requests, places, at: address, isDurable ? max(minReplicas, 0) : nil, deadline, &replies)
                    if let fault { failure = fault }
                } catch { failure = error }
            }
            pending.removeAll { replies[$0] != nil }
            if pending.isEmpty { break }
            let now = network.monotonicMilliseconds
            let error = failure ?? .noOwner(slot: requests[pending[0]].slot, "the servers send each other's addresses")
            if case .refused = error { refusal = error }
            guard now < deadline, error.isPassing else { throw now < deadline ? error : refusal ?? error }
            if isImpatient, case .refused(_, let fault) = error, !fault.isOnItsWay { throw error }
            // The redirect is stored in the map, so its target is asked next. Another server may still have an older map.
            if case .refused(_, let fault) = error, case .moved(_, .some) = fault.kind, redirects < Limits.redirectCount
            {
                redirects += 1
                continue
            }
            redirects = 0
            // A redirected slot needs no pause. A retry without any progress does.
            if pending.count == before {
                network.sleep(milliseconds: min(pause, Int(deadline - now)))
                pause = min(pause * 2, Limits.longestRetryMilliseconds)
            }
            do throws(RedisError) { try askForMap(until: deadline) } catch {
                guard error.isPassing else { throw error }
            }
            if isImpatient, hasOnlySilentServers(for: pending.map { requests[$0].slot }) { throw refusal ?? error }
        }
        return replies.map { $0 ?? .none }
    }

    private static func reason(hasMap: Bool) -> String {
        hasMap ? "the cluster's map has no server for it" : "no server has sent the cluster's map yet"
    }

    /// Returns whether all servers of these slots are unresponsive; without a map, the seeds count.
    private func hasOnlySilentServers(for slots: [Int]) -> Bool {
        guard cluster.isKnown else { return cluster.candidates.allSatisfy(cluster.isSilent) }
        return slots.allSatisfy { cluster.primary(of: $0).map(cluster.isSilent) ?? true }
    }

    /// Runs the commands of one server; a command to retry gets no reply, and the returned failure is the reason.
    private func run(
        _ requests: [RedisRequest], _ places: [Int], at address: RedisAddress, _ minReplicas: Int?, _ deadline: UInt64,
        _ replies: inout [RedisReply?]
    ) throws(RedisError) -> RedisError? {
        let left = Int(clamping: Int64(deadline) - Int64(network.monotonicMilliseconds))
        let timeout = max(1, min(left, Limits.commandMilliseconds))
        var commands = places.map { requests[$0].command }
        let wanted = minReplicas.map { max($0, cluster.replicaCount(of: address)) }
        if let wanted {
            commands.append(Self.touchCommand(slot: requests[places[0]].slot))
            commands.append(waitCommand(wanted, at: address, timeoutMilliseconds: timeout / 2))
        }
        let attempt = try exchange(commands, at: address, timeoutMilliseconds: timeout)
        var failure: RedisError?
        var isDurable = true
        if let wanted,
            attempt.replies[places.count].fault != nil || !Self.isDurable(attempt.replies[places.count + 1], wanted)
        {
            isDurable = false
            noteRefusal(of: commands[places.count + 1], attempt.replies[places.count + 1], at: address)
            failure = .refused(
                address,
                Self.refusal(attempt.replies[places.count...], of: commands[(places.count)...])
                    ?? RedisFault("NOREPLICAS fewer than \(wanted) replicas have the rows"))
        }
        for (place, reply) in zip(places, attempt.replies) {
            if let fault = reply.fault, fault.isPassing {
                failure = .refused(address, fault)
                guard let (target, isAsking) = redirect(reply, from: address), isAsking, let target else { continue }
                // This key has already moved to the other server. The slot's next key may not have moved, so the map is not
                // changed.
                var again = [RedisCommand("ASKING"), requests[place].command]
                if let wanted {
                    again += [RedisCommand("ASKING"), Self.touchCommand(slot: requests[place].slot)]
                    again.append(waitCommand(wanted, at: target, timeoutMilliseconds: timeout / 2))
                }
                let asked = try exchange(again, at: target, timeoutMilliseconds: timeout)
                guard asked.replies[1].fault?.isPassing != true else { continue }
                if let wanted, asked.replies[3].fault != nil || !Self.isDurable(asked.replies[4], wanted) { continue }
                replies[place] = asked.replies[1]
            } else if isDurable {
                replies[place] = reply
            }
        }
        return failure
    }

    /// Returns a write that makes the following wait effective.
    ///
    /// Since version 7.2 a server waits for the writes of the same connection only. A command that is repeated on a new
    /// connection may write nothing, so a wait alone would return immediately without regard to the replicas.
    package static func touchCommand(slot: Int) -> RedisCommand {
        RedisCommand("SET", RedisSlot.key(in: slot), "1", "PX", "60000")
    }

    /// Returns a command that waits until replicas have this connection's writes, on their disks if all servers support
    /// `WAITAOF`.
    package func waitCommand(_ replicas: Int, at address: RedisAddress?, timeoutMilliseconds: Int) -> RedisCommand {
        if let address, cluster.waitsForDisks(at: address) {
            return RedisCommand("WAITAOF", "1", "\(replicas)", "\(timeoutMilliseconds)")
        }
        return RedisCommand("WAIT", "\(replicas)", "\(timeoutMilliseconds)")
    }

    /// Records a server that rejects `WAITAOF`, so that the next wait uses `WAIT`.
    package func noteRefusal(of command: RedisCommand, _ reply: RedisReply, at address: RedisAddress) {
        if command.name == "WAITAOF", reply.fault != nil { cluster.noteRefusedWaitAOF(at: address) }
    }

    /// Returns the missing right if a wait, or the write before it, was denied; a denied `WAITAOF` is replaced by `WAIT`.
    package static func refusal(
        _ replies: some Sequence<RedisReply>, of commands: some Sequence<RedisCommand>
    ) -> RedisFault? {
        for (command, reply) in zip(commands, replies) where command.name != "WAITAOF" {
            if let fault = reply.fault, fault.isOfRights { return fault }
        }
        return nil
    }

    package static func isDurable(_ reply: RedisReply, _ replicas: Int) -> Bool {
        if let parts = reply.array {
            return parts.count == 2 && parts[0].integer ?? 0 >= 1 && parts[1].integer ?? 0 >= replicas
        }
        return reply.integer ?? -1 >= replicas
    }

    // MARK: The map

    /// Requests the slot map from the servers, unless another thread did so recently.
    ///
    /// - Parameter deadline: the time after which no server is asked, in the network's milliseconds. Servers that timed out are
    ///   asked last the next time, so that each call makes progress.
    /// - Throws: the failure of the last server asked, if none returned a map.
    package func askForMap(until deadline: UInt64 = .max) throws(RedisError) {
        guard cluster.mayAsk(now: network.monotonicMilliseconds) else {
            // Nothing can run without a map, so this thread waits for the map that the other thread requested.
            if !cluster.isKnown { network.sleep(milliseconds: Limits.retryMilliseconds) }
            return
        }
        var failure = RedisError.noOwner(slot: 0, "no server is configured")
        // Any cluster node, even a replica, returns the whole map. Without cluster mode only the primary does.
        var pending = cluster.candidates
        var asked: Set<RedisAddress> = []
        // A server that is cut off from its cluster still returns an old map.
        var doubtful: Map?
        while !pending.isEmpty {
            let address = pending.removeFirst()
            guard asked.insert(address).inserted else { continue }
            let now = network.monotonicMilliseconds
            guard now < deadline else { break }
            do throws(RedisError) {
                switch try map(of: address, timeoutMilliseconds: Int(clamping: deadline - now)) {
                case .map(let map):
                    guard map.isWhole, map.epoch >= cluster.epoch else {
                        if doubtful.map({ ($0.isWhole ? 1 : 0, $0.epoch) < (map.isWhole ? 1 : 0, map.epoch) }) ?? true {
                            doubtful = map
                        }
                        continue
                    }
                    return take(map)
                case .replica(let primary):
                    if !asked.contains(primary) { pending.insert(primary, at: 0) }
                    failure = .noOwner(slot: 0, "\(address) is a replica of \(primary), which gave no map")
                }
            } catch { failure = error }
        }
        guard let doubtful else { throw failure }
        take(doubtful)
    }

    private func take(_ map: Map) { cluster.take(map.ranges, isCluster: map.isCluster, epoch: map.epoch) }

    private struct Map {
        var ranges: [SlotRange]
        var isCluster: Bool
        /// Whether the server reports that the cluster serves all slots.
        var isWhole = true
        var epoch = 0
    }

    private enum Answer {
        case map(Map)
        /// The server is a replica without cluster mode; its primary must be asked.
        case replica(of: RedisAddress)
    }

    private func map(of address: RedisAddress, timeoutMilliseconds: Int) throws(RedisError) -> Answer {
        let replies = try exchange(
            [
                RedisCommand("INFO", "server"), RedisCommand("CLUSTER", "SLOTS"), RedisCommand("INFO", "replication"),
                RedisCommand("CLUSTER", "INFO"),
            ], at: address, timeoutMilliseconds: min(timeoutMilliseconds, Limits.mapMilliseconds)
        ).replies
        for reply in replies {
            if let fault = reply.fault, fault.isOfAccess || fault.isPassing { throw .refused(address, fault) }
        }
        guard let server = replies[0].text, let replication = replies[2].text else {
            throw .unexpected(address, command: "INFO", "no text")
        }
        cluster.note(version: RedisInformation(server).version, of: address)
        if replies[1].array != nil {
            guard let ranges = SlotRange.parse(replies[1], askedAt: address) else {
                throw .unexpected(address, command: "CLUSTER SLOTS", "no ranges of slots with their servers")
            }
            // A server without slots has not joined a cluster or was reset.
            guard !ranges.isEmpty else { throw .refused(address, RedisFault("CLUSTERDOWN it knows no slots")) }
            let state = RedisInformation(replies[3].text ?? "")
            return .map(
                Map(
                    ranges: ranges, isCluster: true, isWhole: state["cluster_state"] != "fail",
                    epoch: state.number("cluster_current_epoch") ?? 0))
        }
        let information = RedisInformation(replication)
        if information["role"] == "slave" {
            guard let host = information["master_host"], let port = information["master_port"].flatMap({ UInt16($0) })
            else { throw .unexpected(address, command: "INFO", "a replica without a primary") }
            return .replica(of: RedisAddress(host: host, port: port))
        }
        let primary = RedisCluster.Primary(address: address, replicas: information.replicas)
        return .map(Map(ranges: [SlotRange(slots: 0...(RedisSlot.count - 1), primary: primary)], isCluster: false))
    }
}
