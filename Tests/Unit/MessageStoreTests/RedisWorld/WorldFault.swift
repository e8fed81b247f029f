import Redis
import SimulatedRedis

@testable import MessageStore

/// A deliberate fault of the engine, planted between it and the servers.
///
/// It changes correct calls and replies, so product code needs no hook for it.
enum WorldFault: String, CaseIterable, Sendable {
    /// The engine waits for no replica.
    case waitSkipped
    /// The number of replicas that WAIT reached is ignored.
    case waitCountIgnored
    /// Rows are not waited for before their entries leave the log.
    case trimBeforeRows
    /// A successor's fence is not waited for.
    case fenceUnwaited
    /// The script that writes rows does not check the epoch.
    case epochUnchecked
    /// The script that trims does not check for a successor.
    case trimUnchecked
    /// A batch of rows that was sent twice runs twice.
    case doneIgnored
    /// A group whose reply was lost counts as written.
    case replyAssumed
    /// A group whose reply was lost is written again with another id.
    case sentAgainAnew
    /// A group is not read before a later WAIT confirms it.
    case coverUnchecked
    /// A WAIT on a new connection that has written nothing.
    case coverUnwritten
    /// A group is appended even if its predecessor is missing.
    case predecessorUnchecked
    /// A group refused for a missing predecessor counts as written.
    case apartIgnored
    /// A WAIT that completed earlier counts for later writes.
    case waitReused
    /// A repeated fence writes another entry.
    case fenceRepeats
    /// The last page of the log is not replayed.
    case lastPageSkipped
    /// A batch sent to a slot's former server is dropped.
    case movedDropped
    /// A replica's refusal counts as success.
    case readOnlySucceeds
    /// Rows and log are read from a replica.
    case replicaReads

    static func isCall(_ command: RedisCommand, of script: RedisScript) -> Bool {
        let words = command.arguments
        guard words.count > 1 else { return false }
        return command.name == "EVALSHA" && words[1] == Array(script.digest.utf8)
            || command.name == "EVAL" && words[1] == Array(script.source.utf8)
    }

    /// The implementation of a fault for one process.
    final class Planted: CallChange {
        private let fault: WorldFault
        private let cluster: SimulatedCluster
        /// The last number that was sent to each log.
        private var sent: [[UInt8]: [UInt8]] = [:]
        private var bodies: [[UInt8]: [Entry]] = [:]
        private struct Entry {
            let id: [UInt8]
            let body: [UInt8]
            var reply: RedisReply { .array([.bytes(id), .array([.bytes(Array("b".utf8)), .bytes(body)])]) }
        }
        /// Whether the last WAIT for a group has reached a replica.
        private var hasWaited = false

        init(_ fault: WorldFault, _ cluster: SimulatedCluster) { (self.fault, self.cluster) = (fault, cluster) }

        private static func changed(_ command: RedisCommand, _ script: RedisScript, _ old: String, _ new: String)
            -> RedisCommand
        {
            guard WorldFault.isCall(command, of: script), let place = script.source.range(of: old) else {
                return command
            }
            var source = script.source
            source.replaceSubrange(place, with: new)
            var changed = RedisCommand("EVAL", source)
            for word in command.arguments.dropFirst(2) { changed.append(word) }
            return changed
        }

        private static func isWait(_ command: RedisCommand) -> Bool { ["WAIT", "WAITAOF"].contains(command.name) }
        /// Returns whether a command appends a group, in either form.
        private static func isEntry(_ command: RedisCommand) -> Bool {
            let words = command.arguments
            let isAppend = command.name == "XADD" || WorldFault.isCall(command, of: RedisScripts.appendBehind)
            return isAppend && words.count > 2 && words[words.count - 2] == [UInt8(ascii: "b")]
        }
        private static func log(_ command: RedisCommand) -> [UInt8] {
            command.arguments[command.name == "XADD" ? 1 : 3]
        }
        /// Returns whether a command reads one entry before a write and a WAIT.
        private static func isLook(_ command: RedisCommand) -> Bool {
            let words = command.arguments
            return command.name == "XRANGE" && words.count == 4 && words[2] == words[3]
        }
        private static func id(_ command: RedisCommand) -> [UInt8] {
            let words = command.arguments
            return words[words.count - 3]
        }
        private static let ping = RedisCommand("PING")

        func sent(_ command: RedisCommand, among all: [RedisCommand]) -> RedisCommand {
            switch fault {
            case .waitSkipped: return Self.isWait(command) ? Self.ping : command
            case .epochUnchecked:
                return Self.changed(
                    command, RedisScripts.batch, "own[1] and tonumber(own[1]) > tonumber(ARGV[1])", "false")
            case .trimUnchecked:
                return Self.changed(command, RedisScripts.trim, "tonumber(epoch) > tonumber(ARGV[1])", "false")
            case .doneIgnored:
                return Self.changed(command, RedisScripts.batch, "done >= tonumber(ARGV[2])", "false")
            case .fenceRepeats:
                return Self.changed(
                    command, PartOpening.fenceScript, "ARGV[2] then return last end",
                    "ARGV[2] then return last end\n redis.call('XADD', KEYS[1], epoch .. '-' .. (number + 1), 'f', ARGV[2])"
                )
            case .coverUnwritten:
                return command.name == "SET" && all.contains { Self.isLook($0) } ? Self.ping : command
            case .predecessorUnchecked:
                return Self.changed(
                    command, RedisScripts.appendBehind, "not isBehind", "false")
            case .waitReused:
                return Self.isWait(command) && hasWaited && all.contains { Self.isEntry($0) } ? Self.ping : command
            case .replyAssumed, .sentAgainAnew:
                guard Self.isEntry(command) else { return command }
                let id = Self.id(command)
                note(command)
                defer { sent[Self.log(command)] = id }
                guard fault == .sentAgainAnew, sent[Self.log(command)] == id else { return command }
                var changed = RedisCommand()
                for (place, word) in command.arguments.enumerated() {
                    let isID = place == command.arguments.count - 3
                    changed.append(isID ? word.prefix { $0 != UInt8(ascii: "-") } + Array("-*".utf8) : word)
                }
                return changed
            case .coverUnchecked:
                if Self.isEntry(command) { note(command) }
                return command
            default: return command
            }
        }

        /// Records the last entries sent to each log.
        private func note(_ command: RedisCommand) {
            guard let body = command.arguments.last else { return }
            var list = bodies[Self.log(command)] ?? []
            list.removeAll { $0.id == Self.id(command) }
            list.append(Entry(id: Self.id(command), body: body))
            bodies[Self.log(command)] = list.suffix(2 * Limits.groupsOfLog)
        }

        func told(_ command: RedisCommand, _ reply: RedisReply, among all: [RedisCommand]) -> RedisReply {
            func satisfied() -> RedisReply {
                command.name == "WAIT" ? .integer(9) : .array([.integer(1), .integer(9)])
            }
            switch fault {
            case .waitSkipped, .waitCountIgnored: return Self.isWait(command) ? satisfied() : reply
            case .trimBeforeRows:
                let isOfRows = all.contains { WorldFault.isCall($0, of: RedisScripts.batch) }
                return Self.isWait(command) && isOfRows ? satisfied() : reply
            case .fenceUnwaited:
                let isOfFence = all.contains { WorldFault.isCall($0, of: PartOpening.fenceScript) }
                return Self.isWait(command) && isOfFence ? satisfied() : reply
            case .coverUnchecked:
                guard Self.isLook(command), all.contains(where: { $0.name == "SET" }), reply.fault == nil else {
                    return reply
                }
                return .array(
                    (bodies[command.arguments[1]] ?? []).filter { $0.id == command.arguments[2] }.map(\.reply))
            case .coverUnwritten:
                return command.name == "SET" && all.contains { Self.isLook($0) } ? .status("OK") : reply
            case .apartIgnored:
                guard Self.isEntry(command), reply.fault?.code == "APART" else { return reply }
                return .bytes(Self.id(command))
            case .waitReused:
                guard Self.isWait(command), all.contains(where: { Self.isEntry($0) }) else { return reply }
                if reply == .status("PONG") {
                    hasWaited = false
                    return satisfied()
                }
                hasWaited = (reply.integer ?? reply.array?.last?.integer ?? 0) > 0
                return reply
            case .replyAssumed where command.name == "XRANGE" && all.contains { $0.name == "XINFO" }:
                return reply.fault == nil ? .array((bodies[command.arguments[1]] ?? []).map(\.reply)) : reply
            case .replyAssumed, .sentAgainAnew:
                guard command.name == "XINFO", case .array(var fields) = reply,
                    let place = fields.firstIndex(where: { $0.text == "last-generated-id" }),
                    let last = fields[place + 1].text.flatMap({ LogID($0) }),
                    let id = sent[command.arguments[2]].flatMap({ LogID(String(decoding: $0, as: UTF8.self)) })
                else { return reply }
                guard last.epoch == id.epoch else { return reply }
                let told = fault == .replyAssumed ? max(last, id) : LogID(epoch: id.epoch, number: id.number - 1)
                fields[place + 1] = .bytes(Array("\(told)".utf8))
                return .array(fields)
            case .lastPageSkipped:
                guard command.name == "XRANGE", let entries = reply.array,
                    let count = command.arguments.last.flatMap({ Int(String(decoding: $0, as: UTF8.self)) }),
                    entries.count < count
                else { return reply }
                return .array([])
            case .movedDropped:
                guard WorldFault.isCall(command, of: RedisScripts.batch), case .moved = reply.fault?.kind else {
                    return reply
                }
                return .integer(1)
            case .readOnlySucceeds:
                guard case .readOnly = reply.fault?.kind else {
                    let isRefused = reply.fault?.text.hasPrefix("ERR WAIT cannot be used with replica") == true
                    return isRefused ? satisfied() : reply
                }
                if Self.isEntry(command) { return .bytes(Self.id(command)) }
                if WorldFault.isCall(command, of: RedisScripts.batch) { return .integer(1) }
                return command.name == "SET" ? .status("OK") : reply
            case .replicaReads:
                guard ["HGET", "HMGET", "ZRANGEBYLEX", "XRANGE"].contains(command.name), reply.fault == nil,
                    let found = cluster.look(command.arguments, onReplica: true)
                else { return reply }
                return SimulatedNetwork.reply(found)
            default: return reply
            }
        }
    }
}

extension String {
    fileprivate func range(of text: String) -> Range<String.Index>? {
        var place = startIndex
        while place < endIndex {
            if self[place...].hasPrefix(text) { return place..<index(place, offsetBy: text.count) }
            place = index(after: place)
        }
        return nil
    }
}
