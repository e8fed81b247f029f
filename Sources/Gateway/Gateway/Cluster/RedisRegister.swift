package import Cluster
internal import Cryptography
internal import Delivery
internal import MessageStore
package import Redis
internal import TextForms

/// The register in Redis: scripts on keys of one slot, `{lw:NAME}:…`.
///
/// Changes that must not be lost succeed only after the primary's replicas confirmed them. The register is not thread-safe.
package final class RedisRegister: ClusterRegister {
    private let client: RedisClient
    private let keys: [[UInt8]]
    private let slot: Int
    private let timing: ClusterTiming
    private let minReplicas: Int
    private let timeoutMilliseconds: Int
    /// The timeout of a slot map refresh; a call and the refresh after it take less than a lease.
    private static let mapMilliseconds: UInt64 = 400

    /// Creates a register for a cluster; a call takes at most `timeoutMilliseconds`, well below a lease.
    ///
    /// Durable changes need at least `minReplicas` replicas, even if the slot map lists fewer.
    package init(
        _ cluster: RedisCluster, name: String, minReplicas: Int, timing: ClusterTiming = ClusterTiming(),
        timeoutMilliseconds: Int = 800
    ) {
        client = RedisClient(cluster)
        keys = RegisterKeys.all(name)
        slot = RedisSlot.of(keys[0])
        (self.timing, self.minReplicas, self.timeoutMilliseconds) = (timing, minReplicas, timeoutMilliseconds)
    }

    package func close() { client.close() }

    /// Returns the epoch of a partition's entry, or `nil` without an entry or an answer; can be called from any thread.
    package static func claimedEpoch(of part: Int, _ cluster: RedisCluster, name: String) -> UInt64? {
        let client = RedisClient(cluster)
        defer { client.close() }
        let key = RegisterKeys.owners(name)
        var command = RedisCommand("HGET")
        command.append(key)
        command.append(part)
        let deadline = cluster.network.monotonicMilliseconds + mapMilliseconds
        let request = RedisRequest(command, slot: RedisSlot.of(key))
        guard let text = (try? client.run([request], deadline: deadline))?.first?.text,
            let entry = PartEntry(text: text), entry.epoch > 0
        else { return nil }
        return entry.epoch
    }

    // MARK: Calls

    package func join(_ request: JoinRequest) throws(RegisterError) -> JoinReply {
        let constants = request.constants
        let key = constants.tokenKey.map { byte in
            String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }
        let reply = try run(
            RegisterScripts.join,
            [
                "\(request.instance)", request.info.text, request.info.address.isEmpty ? "0" : "1",
                "\(constants.format)", "\(constants.partCount)", key.joined(), "\(constants.queueEpoch)",
                "\(timing.numberRest)", "\(NodeID.range.upperBound)", Self.hex(constants.history.id),
            ], mustBeDurable: false)
        let parts = try reader(reply, address: request.info.address)
        guard let number = UInt16(parts.detail), let node = NodeID(number) else { throw .malformed("no number") }
        let fields = try parts.array(9).map(\.text)
        guard fields.count == 5, let format = fields[0].flatMap({ Int($0) }),
            let partCount = fields[1].flatMap({ Int($0) }),
            let tokenKey = fields[2].flatMap(Self.bytes(hex:)), let queueEpoch = fields[3].flatMap({ UInt64($0) }),
            tokenKey.count == 32, 1...256 ~= partCount
        else { throw .malformed("the cluster's constants") }
        let snapshot = try snapshot(parts, partCount: partCount)
        return JoinReply(
            node: node,
            constants: ClusterConstants(
                format: format, partCount: partCount, tokenKey: tokenKey, queueEpoch: queueEpoch,
                history: snapshot.history),
            snapshot: snapshot)
    }

    package func renew(
        _ node: NodeID, instance: UInt64, info: MemberInfo, clock: Int64, seen: UInt64
    ) throws(RegisterError) -> RenewReply {
        let parts = try reader(
            try run(
                RegisterScripts.renew, ["\(node)", "\(instance)", info.text, "\(clock)", "\(seen)"],
                mustBeDurable: false))
        if parts.status == "same" {
            return .unchanged(serverTime: try parts.number(3), clockFloor: try parts.number(4))
        }
        let fields = try parts.array(9).map(\.text)
        guard fields.count == 5, let partCount = fields[1].flatMap({ Int($0) }), 1...256 ~= partCount else {
            throw .malformed("the cluster's constants")
        }
        return .changed(try snapshot(parts, partCount: partCount), isRecreated: parts.detail == "recreated")
    }

    package func change(
        _ node: NodeID, instance: UInt64, _ changes: [PartChange]
    ) throws(RegisterError) -> [PartEntry] {
        var words = ["\(node)", "\(instance)"]
        for change in changes { words += ["\(change.part)", change.from.text, change.to.text] }
        let parts = try reader(try run(RegisterScripts.change, words, mustBeDurable: true))
        var entries: [PartEntry] = []
        for reply in parts.all.dropFirst(2) {
            guard let text = reply.text, let entry = PartEntry(text: text) else { throw .malformed("a part's entry") }
            entries.append(entry)
        }
        guard entries.count == changes.count else { throw .malformed("\(entries.count) entries") }
        return entries
    }

    package func expire(_ node: NodeID, leaseEnd: Int64) throws(RegisterError) {
        _ = try reader(try run(RegisterScripts.expire, ["\(node)", "\(leaseEnd)"], mustBeDurable: false))
    }

    package func leave(_ node: NodeID, instance: UInt64) throws(RegisterError) {
        _ = try reader(try run(RegisterScripts.leave, ["\(node)", "\(instance)"], mustBeDurable: true))
    }

    package func wish(_ wish: RegisterRequest) throws(RegisterError) {
        let words: [String]
        let target: NodeID?
        switch wish {
        case .drain(let node): (words, target) = (["drain:\(node)", "1", "\(node)"], node)
        case .undrain(let node): (words, target) = (["drain:\(node)", "", ""], node)
        case .move(let part, let node):
            (words, target) = (["pin:\(part)", node.map { "\($0)" } ?? "", node.map { "\($0)" } ?? ""], node)
        }
        let parts = try reader(try run(RegisterScripts.wish, words, mustBeDurable: true), isChecked: false)
        if parts.status == "unknown", let target { throw .unknownNode(target) }
    }

    package func renewHistory(id: UInt64) throws(RegisterError) {
        _ = try reader(try run(RegisterScripts.renewHistory, [Self.hex(id)], mustBeDurable: true))
    }

    /// Formats an id as sixteen digits; 0 is not a valid id and becomes 1.
    private static func hex(_ id: UInt64) -> String {
        let digits = String(max(id, 1), radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }

    // MARK: Sending

    private func run(
        _ script: RedisScript, _ words: [String], mustBeDurable: Bool
    ) throws(RegisterError) -> RedisReply {
        var command = RedisCommand(script, keys: keys)
        command.append(SecureRandom.word() | 1)
        command.append(timing.lease)
        for word in words { command.append(word) }
        // The deadline also covers redirects and unresponsive servers, so that a second call still fits into a lease.
        let deadline = client.cluster.network.monotonicMilliseconds + UInt64(timeoutMilliseconds)
        do throws(RedisError) {
            var commands = [command]
            var replicas = 0
            if mustBeDurable {
                let address = client.cluster.primary(of: slot)
                if let address { replicas = client.cluster.replicaCount(of: address) }
                replicas = max(replicas, minReplicas)
                if replicas > 0 {
                    // A repeated change may write nothing, so an extra write gives `WAIT` something to wait for.
                    commands.append(RedisClient.touchCommand(slot: slot))
                    commands.append(
                        client.waitCommand(replicas, at: address, timeoutMilliseconds: timeoutMilliseconds / 2))
                }
            }
            let attempt = try client.attempt(
                commands, slot: slot, timeoutMilliseconds: timeoutMilliseconds, deadline: deadline)
            if let fault = attempt.replies[0].fault { throw .refused(attempt.address, fault) }
            if commands.count > 1,
                attempt.replies[1].fault != nil || !RedisClient.isDurable(attempt.replies[2], replicas)
            {
                client.noteRefusal(of: commands[2], attempt.replies[2], at: attempt.address)
                throw .refused(
                    attempt.address,
                    RedisClient.refusal(attempt.replies[1...], of: commands[1...])
                        ?? RedisFault("NOREPLICAS fewer than \(replicas) replicas have the change"))
            }
            return attempt.replies[0]
        } catch {
            // Another server may be the primary now. The map refresh also ranks unresponsive servers last for the next call.
            do throws(RedisError) {
                try client.askForMap(until: client.cluster.network.monotonicMilliseconds + Self.mapMilliseconds)
            } catch {}
            throw .unavailable(error.description)
        }
    }

    // MARK: Reading

    private struct Parts {
        var all: [RedisReply]
        var status: String
        var detail: String

        func number(_ index: Int) throws(RegisterError) -> Int64 {
            guard index < all.count, let text = all[index].text, let number = Int64(text) else {
                throw .malformed("no number at \(index)")
            }
            return number
        }

        func array(_ index: Int) throws(RegisterError) -> [RedisReply] {
            guard index < all.count, let array = all[index].array else { throw .malformed("no list at \(index)") }
            return array
        }

        func pairs(_ index: Int) throws(RegisterError) -> [(String, String)] {
            let array = try array(index)
            guard array.count % 2 == 0 else { throw .malformed("half a pair") }
            var pairs: [(String, String)] = []
            for place in stride(from: 0, to: array.count, by: 2) {
                guard let key = array[place].text, let value = array[place + 1].text else {
                    throw .malformed("a pair without text")
                }
                pairs.append((key, value))
            }
            return pairs
        }
    }

    private func reader(
        _ reply: RedisReply, isChecked: Bool = true, address: String = ""
    ) throws(RegisterError) -> Parts {
        guard let all = reply.array, all.count >= 2, let status = all[0].text, let detail = all[1].text else {
            throw .malformed("a reply without status")
        }
        switch status {
        case "ok", "same": break
        case "replaced": throw .replaced
        case "expired": throw .expired
        case "format": throw .formatDiffers(Int(detail) ?? 0)
        case "parts": throw .partCountDiffers(Int(detail) ?? 0)
        case "alone": throw .worksAlone(address: detail)
        case "taken":
            guard let node = UInt16(detail).flatMap({ NodeID($0) }) else { throw .malformed("the number \(detail)") }
            throw .addressTaken(node, address: address)
        case "full": throw .isFull
        case "copyTo": throw .isCopied(isTarget: true, other: detail)
        case "copyFrom": throw .isCopied(isTarget: false, other: detail)
        default: if isChecked { throw .malformed("the status \(status)") }
        }
        return Parts(all: all, status: status, detail: detail)
    }

    /// The times for which sums and differences do not overflow.
    private static let times: ClosedRange<Int64> = 0...ClusterTiming.latestTime

    private func snapshot(_ parts: Parts, partCount: Int) throws(RegisterError) -> RegisterSnapshot {
        guard parts.all.count > 2, let version = parts.all[2].text.flatMap({ UInt64($0) }) else {
            throw .malformed("no version")
        }
        let serverTime = try parts.number(3)
        guard Self.times.contains(serverTime) else { throw .malformed("the time \(serverTime)") }
        var snapshot = RegisterSnapshot(
            version: version, serverTime: serverTime, clockFloor: try parts.number(4), partCount: partCount)
        guard let text = try parts.array(9).last?.text, let history = StoreHistory(text) else {
            throw .malformed("the store's history")
        }
        snapshot.history = ClusterHistory(id: history.id, began: history.began)
        var ends: [String: Int64] = [:]
        for (node, end) in try parts.pairs(6) { ends[node] = Int64(end) }
        for (key, value) in try parts.pairs(5) {
            let fields = value.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
            guard let number = UInt16(key), let node = NodeID(number), fields.count == 3,
                let instance = UInt64(fields[0]), let since = Int64(fields[1]), let end = ends[key],
                Self.times.contains(since), Self.times.contains(end)
            else { throw .malformed("the member \(key)") }
            snapshot.members[node] = Member(
                info: MemberInfo(text: fields[2]), instance: instance, since: since, leaseEnd: end)
        }
        for (key, value) in try parts.pairs(7) {
            guard let part = Int(key), snapshot.entries.indices.contains(part), let entry = PartEntry(text: value)
            else {
                throw .malformed("the part \(key)")
            }
            snapshot.entries[part] = entry
        }
        for (key, value) in try parts.pairs(8) {
            let fields = key.split(separator: ":")
            guard fields.count == 2, let number = Int(fields[1]) else { throw .malformed("the wish \(key)") }
            switch fields[0] {
            case "drain": if let node = NodeID(number) { snapshot.drained.insert(node) }
            case "pin":
                if let value = UInt16(value), let node = NodeID(value) { snapshot.pins[number] = node }
            default: break  // written by a newer release
            }
        }
        return snapshot
    }

    private static func bytes(hex: String) -> [UInt8]? {
        let digits = Array(hex.utf8)
        guard digits.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        for place in stride(from: 0, to: digits.count, by: 2) {
            guard let byte = UInt8(String(decoding: digits[place..<place + 2], as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(byte)
        }
        return bytes
    }
}
