internal import Synchronization

/// One command and the slot of its keys.
package struct RedisRequest: Sendable {
    package var command: RedisCommand
    package var slot: Int
    package init(_ command: RedisCommand, slot: Int) { (self.command, self.slot) = (command, slot) }
}

/// One thread's connections to the servers of a cluster.
///
/// Not `Sendable`: made and used by one thread.
package final class RedisClient {
    private struct Link {
        var connection: any RedisConnection
        var number: UInt64
    }

    /// The replies of a try, and where they came from.
    package struct Attempt {
        package var replies: [RedisReply]
        package var address: RedisAddress
        /// Differs for each connection of this process: `WAIT` counts for its own connection only.
        package var connection: UInt64
    }

    package let cluster: RedisCluster
    private var links: [RedisAddress: Link] = [:]
    /// Of all clients: what one of them has written, the wait of another one does not speak for.
    private static let lastNumber = Atomic<UInt64>(0)

    package init(_ cluster: RedisCluster) { self.cluster = cluster }

    private var network: any RedisNetwork { cluster.network }

    /// Closes all connections; a later command opens new ones.
    package func close() {
        for link in links.values { link.connection.close() }
        links.removeAll()
    }

    // MARK: One server

    /// Runs commands at one server.
    ///
    /// - Parameters:
    ///   - commands: sent together, run in order.
    ///   - address: the server; connected to first if need be.
    ///   - timeoutMilliseconds: for all replies.
    ///   - connection: if given, only this connection will do (`Attempt.connection`).
    /// - Returns: a reply for each command, error replies included.
    /// - Throws: see `RedisConnection.run`; `.broken` when the connection asked for is gone, and nothing was sent.
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

    /// Sends scripts that the server did not have whole; only scripts whose order among the commands does not matter
    /// may be sent together.
    private func sendScripts(
        _ commands: [RedisCommand], _ replies: inout [RedisReply], _ link: Link, _ timeoutMilliseconds: Int
    ) throws(RedisError) {
        let missing = replies.indices.filter { replies[$0].fault?.kind == .noScript && commands[$0].script != nil }
        guard !missing.isEmpty else { return }
        // A wait among them was over before the script ran: it says nothing of what the script writes. `SET` is the write
        // that a wait waits for (`touchCommand`).
        let waits = commands.indices.filter {
            $0 > missing[0] && ["SET", "WAIT", "WAITAOF"].contains(commands[$0].name)
        }
        let places = missing + waits
        // `ASKING` speaks for one command: each that it stood before needs it again.
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

    /// Tries once to run commands at the slot's server, and follows redirects.
    ///
    /// The commands are sent again, all of them, only if the first of them was redirected: then none has run.
    ///
    /// - Parameters:
    ///   - commands: the first has the slot's key.
    ///   - slot: where they belong.
    ///   - timeoutMilliseconds: for the replies of one server.
    ///   - deadline: for the whole, redirects and the map included, in the network's milliseconds.
    /// - Returns: the replies, error replies included.
    /// - Throws: when there is no server or its connection breaks; the commands may have run.
    package func attempt(
        _ commands: [RedisCommand], slot: Int, timeoutMilliseconds: Int = Limits.commandMilliseconds,
        deadline: UInt64 = .max
    ) throws(RedisError) -> Attempt {
        // Another thread may be asking: without its answer no server is known, which is not the same as no server.
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
            // `ASKING` speaks for the next command only.
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

    /// Where a redirected command goes now, noted in the map for good redirects; `nil` for any other reply.
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

    /// Runs commands that may run more than once, until each has a reply that is final.
    ///
    /// Those of one server are sent together, in their order; passing errors and broken connections are tried again.
    ///
    /// - Parameters:
    ///   - requests: commands whose repetition does no harm.
    ///   - isDurable: each server's commands are followed by a wait for its replicas, at least `minReplicas`.
    ///   - minReplicas: fewer are never enough, whatever the map says.
    ///   - deadline: in the network's milliseconds.
    ///   - isImpatient: nothing is tried again once only servers are left that do not answer at all, or once one refuses
    ///     writes for want of memory, disk or replicas.
    /// - Returns: a reply for each request; error replies that do not pass by themselves among them.
    /// - Throws: the last failure at the deadline; some commands have run then.
    package func run(
        _ requests: [RedisRequest], isDurable: Bool = false, minReplicas: Int = 0, deadline: UInt64,
        isImpatient: Bool = false
    ) throws(RedisError) -> [RedisReply] {
        var replies = [RedisReply?](repeating: nil, count: requests.count)
        var pending = Array(requests.indices)
        var pause = Limits.retryMilliseconds
        var redirects = 0
        // What a server said tells more than the time that ran out while it was asked again.
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
            // One that was silent comes last: it may use up the time that is left.
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
            // What was redirected is noted: that server is asked next, and not one whose map may be older.
            if case .refused(_, let fault) = error, case .moved(_, .some) = fault.kind, redirects < Limits.redirectCount
            {
                redirects += 1
                continue
            }
            redirects = 0
            // A server that has moved slots answers at once elsewhere; one that is in trouble needs time.
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

    /// True when all these slots' servers are silent, or before the first map all seeds.
    private func hasOnlySilentServers(for slots: [Int]) -> Bool {
        guard cluster.isKnown else { return cluster.candidates.allSatisfy(cluster.isSilent) }
        return slots.allSatisfy { cluster.primary(of: $0).map(cluster.isSilent) ?? true }
    }

    /// Runs the commands of one server; what is to be tried again gets no reply, and the failure says why.
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
                // The key is at the other server already; the next one of the same slot may not be.
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

    /// A write for a wait to wait for.
    ///
    /// Since 7.2 a server waits for what the same connection has written. A command that is repeated on a new connection
    /// may find its work done and write nothing; the wait would be over at once, whatever the replicas have.
    package static func touchCommand(slot: Int) -> RedisCommand {
        RedisCommand("SET", RedisSlot.key(in: slot), "1", "PX", "60000")
    }

    /// Waits until replicas have what this connection has written; where all of them can, until it is on their disks.
    package func waitCommand(_ replicas: Int, at address: RedisAddress?, timeoutMilliseconds: Int) -> RedisCommand {
        if let address, cluster.waitsForDisks(at: address) {
            return RedisCommand("WAITAOF", "1", "\(replicas)", "\(timeoutMilliseconds)")
        }
        return RedisCommand("WAIT", "\(replicas)", "\(timeoutMilliseconds)")
    }

    /// Takes note of a server that refuses `WAITAOF`: the next wait does without.
    package func noteRefusal(of command: RedisCommand, _ reply: RedisReply, at address: RedisAddress) {
        if command.name == "WAITAOF", reply.fault != nil { cluster.noteRefusedWaitAOF(at: address) }
    }

    /// Why a wait for replicas, or the write before it, cannot succeed: the user lacks a right.
    ///
    /// `WAITAOF` is not among that: the next wait does without it (`noteRefusal`).
    package static func refusal(
        _ replies: some Sequence<RedisReply>, of commands: some Sequence<RedisCommand>
    ) -> RedisFault? {
        for (command, reply) in zip(commands, replies) where command.name != "WAITAOF" {
            if let fault = reply.fault, fault.isOfRights { return fault }
        }
        return nil
    }

    /// Whether the reply to `waitCommand` says that enough have it.
    package static func isDurable(_ reply: RedisReply, _ replicas: Int) -> Bool {
        if let parts = reply.array {
            return parts.count == 2 && parts[0].integer ?? 0 >= 1 && parts[1].integer ?? 0 >= replicas
        }
        return reply.integer ?? -1 >= replicas
    }

    // MARK: The map

    /// Asks the servers for the map, unless another thread did a moment ago.
    ///
    /// - Parameter deadline: no server is asked after it, in the network's milliseconds. Those that were silent until then
    ///   are asked last the next time, so that each call comes further.
    /// - Throws: what the last server that was asked failed with, if none gave a map.
    package func askForMap(until deadline: UInt64 = .max) throws(RedisError) {
        guard cluster.mayAsk(now: network.monotonicMilliseconds) else {
            // Without any map there is nothing to go on with before that answer.
            if !cluster.isKnown { network.sleep(milliseconds: Limits.retryMilliseconds) }
            return
        }
        var failure = RedisError.noOwner(slot: 0, "no server is configured")
        // A replica of a cluster tells all of it; without cluster mode, what is no replica counts.
        var pending = cluster.candidates
        var asked: Set<RedisAddress> = []
        // A server that is cut off from its cluster goes on telling an old map.
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

    /// What a server tells of the whole.
    private struct Map {
        var ranges: [SlotRange]
        var isCluster: Bool
        /// The server sees a cluster that serves all slots.
        var isWhole = true
        var epoch = 0
    }

    private enum Answer {
        case map(Map)
        /// A replica without cluster mode: its primary is to be asked.
        case replica(of: RedisAddress)
    }

    /// Asks one server.
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
            // A server that knows no slot has not joined, or has forgotten its cluster.
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
