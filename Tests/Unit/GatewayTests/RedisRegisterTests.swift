import Cluster
import Foundation
import Platform
import Redis
import TestKit
import Testing

@testable import Gateway

final class RedisServerProcess {
    let address: RedisAddress
    private let folder = TemporaryFolder()

    init?() throws {
        guard
            let path = ["/usr/bin/redis-server", "/usr/local/bin/redis-server"].first(where: {
                FileManager.default.isExecutableFile(atPath: $0)
            })
        else { return nil }
        for _ in 0..<5 {
            let port = try FreePorts.take()
            let process = Process()
            process.executableURL = URL(filePath: path)
            process.arguments = [
                "--port", "\(port)", "--bind", "127.0.0.1", "--dir", folder.path, "--save", "", "--appendonly", "no",
            ]
            process.standardOutput = FileHandle.nullDevice
            process.standardError = FileHandle.nullDevice
            try process.run()
            let address = RedisAddress(host: "127.0.0.1", port: port)
            for _ in 0..<500 where process.isRunning {
                if let connection = try? RedisSockets().connect(to: address, timeoutMilliseconds: 200) {
                    connection.close()
                    self.address = address
                    running = process
                    return
                }
                Pause.milliseconds(10)
            }
            Self.end(process)
        }
        throw RedisServerFailure()
    }

    private let running: Process

    func command(_ words: String...) throws -> RedisReply {
        let connection = try RedisSockets().connect(to: address, timeoutMilliseconds: 2_000)
        defer { connection.close() }
        var command = RedisCommand()
        for word in words { command.append(word) }
        return try connection.run([command], timeoutMilliseconds: 2_000)[0]
    }

    deinit { Self.end(running) }

    /// SIGKILL, because the server inherits the signal mask of its parent thread, which may block SIGTERM.
    ///
    /// The server has no data to save.
    private static func end(_ process: Process) {
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }
}

struct RedisServerFailure: Error {}

@Suite("The register in Redis")
struct RedisRegisterTests {
    /// Leases far longer than a test, so that the server's clock and the model's clock need not agree.
    private static var timing: ClusterTiming {
        var timing = ClusterTiming()
        timing.lease = 3_600_000
        return timing
    }

    private func info(_ index: Int) -> MemberInfo {
        var info = MemberInfo()
        (info.address, info.release) = ("10.0.0.\(index):7100", "1.0.0")
        return info
    }

    private func constants(parts: Int = 8, format: Int = 1) -> ClusterConstants {
        ClusterConstants(
            format: format, partCount: parts, tokenKey: Array(0..<32), queueEpoch: 0xFEDC_BA98_7654_3210)
    }

    private func register(
        _ server: RedisServerProcess, name: String = "t", timing: ClusterTiming = RedisRegisterTests.timing
    ) -> RedisRegister {
        RedisRegister(
            RedisCluster(seeds: [server.address], network: RedisSockets()), name: name, minReplicas: 0, timing: timing)
    }

    /// The state that both must agree on: everything but times and versions.
    private struct Essence: Equatable {
        var members: [NodeID: MemberInfo]
        var entries: [PartEntry]
        var drained: Set<NodeID>
        var pins: [Int: NodeID]
        var clockFloor: Int64
        init(_ snapshot: RegisterSnapshot) {
            (members, entries) = (snapshot.members.mapValues(\.info), snapshot.entries)
            (drained, pins, clockFloor) = (snapshot.drained, snapshot.pins, snapshot.clockFloor)
        }
    }

    @Test("the scripts match the rules over plain memory, step by step")
    func model() throws {
        guard let server = try RedisServerProcess() else { return }
        for seed in 1...8 as ClosedRange<UInt64> {
            var random = SeededGenerator(state: seed)
            let register = register(server, name: "model\(seed)")
            defer { register.close() }
            var model = RegisterState(timing: Self.timing)
            var nonce: UInt64 = 0
            var joined: [(node: NodeID, instance: UInt64, info: MemberInfo)] = []
            var snapshot: RegisterSnapshot?
            var clock: Int64 = 1_000
            for step in 0..<400 {
                nonce += 1
                let member = joined.randomElement(using: &random)
                switch Int.random(in: 0..<10, using: &random) {
                case 0 where joined.count < 6 || member == nil, 1 where member == nil:
                    let request = JoinRequest(instance: nonce, info: info(step), constants: constants())
                    let real = try register.join(request)
                    let expected = try model.join(request, now: 1, nonce: nonce)
                    #expect(real.node == expected.node && real.constants == expected.constants)
                    #expect(Essence(real.snapshot) == Essence(expected.snapshot), "seed \(seed) step \(step)")
                    joined.append((real.node, nonce, request.info))
                case 2, 3, 4:
                    guard var member else { continue }
                    clock += Int64.random(in: -50...100, using: &random)
                    if Int.random(in: 0..<3, using: &random) == 0 { member.info.lapseCount += 1 }
                    let real = try register.renew(
                        member.node, instance: member.instance, info: member.info, clock: clock, seen: 0)
                    let expected = try model.renew(
                        member.node, instance: member.instance, info: member.info, clock: clock, seen: 0, now: 1,
                        nonce: nonce)
                    guard case .changed(let left, let isLeft) = real, case .changed(let right, let isRight) = expected
                    else {
                        Issue.record("seed \(seed) step \(step): no snapshot")
                        return
                    }
                    #expect(Essence(left) == Essence(right) && isLeft == isRight, "seed \(seed) step \(step)")
                    let again = try register.renew(
                        member.node, instance: member.instance, info: member.info, clock: 0, seen: left.version)
                    guard case .unchanged = again else {
                        Issue.record("seed \(seed) step \(step): a version that was seen came again")
                        return
                    }
                    snapshot = left
                case 5, 6, 7:
                    guard let member, let snapshot else { continue }
                    let changes = (0..<Int.random(in: 1...3, using: &random)).map { _ -> PartChange in
                        let part = Int.random(in: 0..<8, using: &random)
                        let from = snapshot.entries[part]
                        let states: [PartEntry.State] = [
                            .claimed(member.node), .open(member.node), .released(heir: member.node),
                            .released(heir: nil), .failed(by: member.node),
                        ]
                        return PartChange(
                            part: part, from: from,
                            to: PartEntry(epoch: from.epoch + 1, state: states.randomElement(using: &random)!))
                    }
                    let real = outcome { () throws(RegisterError) in
                        try register.change(member.node, instance: member.instance, changes)
                    }
                    let expected = outcome { () throws(RegisterError) in
                        try model.change(member.node, instance: member.instance, changes, now: 1, nonce: nonce)
                    }
                    #expect(real == expected, "seed \(seed) step \(step)")
                case 8:
                    guard let member else { continue }
                    let part = Int.random(in: 0..<8, using: &random)
                    let wish = [
                        RegisterRequest.drain(member.node), .undrain(member.node), .move(part: part, to: member.node),
                        .move(part: part, to: nil), .drain(NodeID(999)!), .move(part: part, to: NodeID(999)!),
                    ].randomElement(using: &random)!
                    let real = outcome { () throws(RegisterError) in
                        try register.wish(wish); return true
                    }
                    let expected = outcome { () throws(RegisterError) in
                        try model.wish(wish, now: 1, nonce: nonce)
                        return true
                    }
                    #expect(real == expected, "seed \(seed) step \(step)")
                default:
                    guard let member, Int.random(in: 0..<4, using: &random) == 0 else { continue }
                    try register.leave(member.node, instance: member.instance)
                    try model.leave(member.node, instance: member.instance, now: 1, nonce: nonce)
                    if Bool.random(using: &random) { joined.removeAll { $0.node == member.node } }
                }
            }
        }
    }

    private func outcome<Value>(_ body: () throws(RegisterError) -> Value) -> Result<Value, RegisterError> {
        do throws(RegisterError) { return .success(try body()) } catch { return .failure(error) }
    }

    @Test("a join that does not fit the cluster is refused with its reason")
    func refusals() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "refusals")
        defer { register.close() }
        let first = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        #expect(throws: RegisterError.formatDiffers(1)) {
            try register.join(JoinRequest(instance: 2, info: info(2), constants: constants(format: 2)))
        }
        #expect(throws: RegisterError.partCountDiffers(8)) {
            try register.join(JoinRequest(instance: 2, info: info(2), constants: constants(parts: 16)))
        }
        #expect(throws: RegisterError.worksAlone(address: "10.0.0.1:7100")) {
            try register.join(JoinRequest(instance: 2, info: MemberInfo(), constants: constants()))
        }
        // The constants are those of the first join, whatever later joins contain.
        var other = constants()
        (other.tokenKey, other.queueEpoch) = (Array(repeating: 9, count: 32), 5)
        let second = try register.join(JoinRequest(instance: 2, info: info(2), constants: other))
        #expect(second.constants == first.constants && second.node != first.node)
        #expect(throws: RegisterError.replaced) {
            try register.renew(first.node, instance: 77, info: info(1), clock: 0, seen: 0)
        }
        #expect(throws: RegisterError.replaced) { try register.change(first.node, instance: 77, []) }
        #expect(throws: RegisterError.replaced) { try register.leave(first.node, instance: 77) }
    }

    @Test("an address belongs to one living gateway; its join may be repeated, and it may rejoin after a stop")
    func addresses() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "addresses")
        defer { register.close() }
        let first = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        #expect(throws: RegisterError.addressTaken(first.node, address: "10.0.0.1:7100")) {
            try register.join(JoinRequest(instance: 2, info: info(1), constants: constants()))
        }
        // The reply of a join may be lost.
        let again = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        try register.leave(first.node, instance: 1)
        try register.leave(again.node, instance: 1)
        let next = try register.join(JoinRequest(instance: 2, info: info(1), constants: constants()))
        #expect(next.snapshot.members.count == 1)
    }

    @Test("gateways that stop cleanly use up no numbers")
    func numbers() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "numbers")
        defer { register.close() }
        var model = RegisterState(timing: Self.timing)
        for instance in 1...UInt64(NodeID.range.upperBound) + 2 {
            let request = JoinRequest(instance: instance, info: info(1), constants: constants())
            let joined = try register.join(request)
            #expect(try model.join(request, now: 1, nonce: instance).node == joined.node)
            try register.leave(joined.node, instance: instance)
            try model.leave(joined.node, instance: instance, now: 1, nonce: instance)
        }
    }

    @Test("joins and leaves keep the store's history; a data loss or an operator starts another one for all gateways")
    func histories() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "history")
        defer { register.close() }
        var other = constants()
        let first = try register.join(JoinRequest(instance: 1, info: info(1), constants: other))
        let original = ClusterHistory(id: other.history.id, began: 0)
        other.history = ClusterHistory(id: 0xABC, began: 5)
        let second = try register.join(JoinRequest(instance: 2, info: info(2), constants: other))
        #expect(second.constants.history == original && second.snapshot.history == original)
        try register.leave(second.node, instance: 2)
        #expect(try history(register, first.node) == original)
        try register.renewHistory(id: 0x123)
        let renewed = try #require(try history(register, first.node))
        #expect(renewed.id == 0x123 && renewed.began > 1_700_000_000_000_000)
        try register.renewHistory(id: 0x124)
        let again = try #require(try history(register, first.node))
        #expect(again.id == 0x124 && again.began >= renewed.began + 1_000_000)
        #expect(try register.join(JoinRequest(instance: 3, info: info(3), constants: other)).constants.history == again)
        for (number, word) in ["renew", "", "0000000000000abc:x", "abc:1"].enumerated() {
            _ = try server.command("HSET", "{lw:history}:c", "history", word)
            other.history.id = UInt64(0x500 + number)
            let joined = try register.join(
                JoinRequest(instance: UInt64(10 + number), info: info(10 + number), constants: other))
            #expect(joined.constants.history.id == other.history.id && joined.constants.history.began > 0, "\(word)")
        }
        _ = try server.command("HDEL", "{lw:history}:c", "history")
        other.history.id = 0x600
        let last = try register.join(JoinRequest(instance: 20, info: info(20), constants: other)).constants.history
        #expect(last.id == 0x600 && last.began > 0, "one that was removed")
    }

    private func history(_ register: RedisRegister, _ node: NodeID) throws -> ClusterHistory? {
        guard
            case .changed(let snapshot, _) = try register.renew(node, instance: 1, info: info(1), clock: 0, seen: 0)
        else { return nil }
        return snapshot.history
    }

    @Test("an implausible clock is not stored, and a stored one is replaced")
    func wrongClock() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "clock")
        defer { register.close() }
        let joined = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        let now = joined.snapshot.serverTime
        func floor(after clock: Int64) throws -> Int64 {
            switch try register.renew(joined.node, instance: 1, info: info(1), clock: clock, seen: 0) {
            case .changed(let snapshot, _): snapshot.clockFloor
            case .unchanged(_, let floor): floor
            }
        }
        #expect(try floor(after: now + 30_000) == now + 30_000)
        #expect(try floor(after: now + 30 * 86_400_000) == now + 30_000)
        for wrong in ["\(Int64.max)", "\(now + 86_400_000)", "-", "1e400"] {
            _ = try server.command("HSET", "{lw:clock}:c", "clock", wrong)
            #expect(try floor(after: now + 40_000) == now + 40_000, "\(wrong)")
        }
    }

    @Test("no gateway follows a time far ahead of the server's")
    func soundClock() {
        func sound(_ floor: Int64) -> Int64 { RegisterSnapshot.soundClockFloor(floor, serverTime: 10_000) }
        #expect(sound(9_000) == 9_000 && sound(10_000 + ClusterTiming.clockStep) == 10_000 + ClusterTiming.clockStep)
        #expect(sound(10_001 + ClusterTiming.clockStep) == 0 && sound(.max) == 0 && sound(-1) == 0 && sound(.min) == 0)
    }

    @Test("every call is refused on the target of a store copy, and on its source only for a time")
    func copied() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "copied")
        defer { register.close() }
        let joined = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        _ = try server.command("HSET", "{lw:copied}:c", "copy", "to", "copyUntil", "1", "copyOther", "a folder")
        #expect(throws: RegisterError.isCopied(isTarget: true, other: "a folder")) {
            try register.join(JoinRequest(instance: 2, info: info(2), constants: constants()))
        }
        #expect(throws: RegisterError.isCopied(isTarget: true, other: "a folder")) {
            try register.renew(joined.node, instance: 1, info: info(1), clock: 0, seen: 0)
        }
        _ = try server.command(
            "HSET", "{lw:copied}:c", "copy", "from", "copyUntil", "\(joined.snapshot.serverTime + 60_000)")
        #expect(throws: RegisterError.isCopied(isTarget: false, other: "a folder")) {
            try register.join(JoinRequest(instance: 2, info: info(2), constants: constants()))
        }
        _ = try server.command("HSET", "{lw:copied}:c", "copyUntil", "1")
        _ = try register.join(JoinRequest(instance: 2, info: info(2), constants: constants()))
    }

    private static var shortTiming: ClusterTiming {
        var timing = ClusterTiming()
        timing.lease = 400
        return timing
    }

    private func join(_ instance: UInt64, secret: String) -> ClusterJoin {
        var info = info(Int(instance))
        info.secretMarks = [secret]
        return ClusterJoin(
            request: JoinRequest(instance: instance, info: info, constants: constants()), name: "t",
            timing: Self.shortTiming)
    }

    @Test("a start with a new secret waits for the leases of killed gateways to expire")
    func deadStranger() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "killed", timing: Self.shortTiming)
        defer { register.close() }
        for instance in 1...2 as ClosedRange<UInt64> {
            _ = try join(instance, secret: "old").join(register) { Issue.record("a wait for \($0)") }
        }
        var troubles: Set<String> = []
        let (reply, sentAt) = try join(3, secret: "new").join(register) {
            troubles.insert($0)
            Pause.milliseconds(20)
        }
        #expect(troubles.contains { $0.contains("gateway 1 at 10.0.0.1:7100") }, "\(troubles)")
        #expect(Set(reply.snapshot.members.keys) == [reply.node])
        // The lease counts from the call that renewed it.
        #expect(SystemClock.monotonicTime - sentAt < 400)
    }

    @Test("a start with another secret than a living gateway's fails after three leases and leaves nothing")
    func livingStranger() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "living", timing: Self.shortTiming)
        defer { register.close() }
        let first = join(1, secret: "old")
        let joined = try first.join(register) { Issue.record("a wait for \($0)") }.reply
        func members() throws -> Set<NodeID> {
            guard
                case .changed(let snapshot, _) = try register.renew(
                    joined.node, instance: 1, info: first.request.info, clock: 0, seen: 0)
            else { return [] }
            return Set(snapshot.members.keys)
        }
        let began = SystemClock.monotonicTime
        do {
            _ = try join(2, secret: "new").join(register) { (_: String) throws in
                #expect(try members() == [joined.node])
                Pause.milliseconds(20)
            }
            Issue.record("it joined")
        } catch let failure as ClusterFailure {
            #expect(failure.description.contains("has another secret"))
        }
        #expect(SystemClock.monotonicTime - began >= 3 * 400)
        #expect(try members() == [joined.node])
    }

    @Test("a start on the source of a store copy waits for its end; on the target it fails")
    func copiedAtStart() throws {
        guard let server = try RedisServerProcess() else { return }
        let register = register(server, name: "source", timing: Self.shortTiming)
        defer { register.close() }
        let first = try join(1, secret: "s").join(register) { _ in }.reply
        try register.leave(first.node, instance: 1)
        _ = try server.command(
            "HSET", "{lw:source}:c", "copy", "from", "copyUntil", "\(first.snapshot.serverTime + 600_000)", "copyOther",
            "x")
        var waits = 0
        _ = try join(2, secret: "s").join(register) {
            waits += 1
            #expect($0.contains("is being copied to x"))
            // Far longer than three leases of a member that blocks the join.
            Pause.milliseconds(20)
            if waits == 100 { _ = try server.command("HDEL", "{lw:source}:c", "copy") }
        }
        #expect(waits == 100)
        _ = try server.command("HSET", "{lw:source}:c", "copy", "to")
        #expect(throws: ClusterFailure.self) {
            try join(3, secret: "s").join(register) { Issue.record("a wait for \($0)") }
        }
    }

    @Test("an expired lease ends the membership for all; its renewal restores it under the same number")
    func lease() throws {
        guard let server = try RedisServerProcess() else { return }
        var timing = ClusterTiming()
        timing.lease = 400
        let register = register(server, name: "lease", timing: timing)
        defer { register.close() }
        let first = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        let second = try register.join(JoinRequest(instance: 2, info: info(2), constants: constants()))
        // Only the second member renews, so often that the register does not conclude that it was unavailable itself.
        var members: Set<NodeID> = [first.node, second.node]
        for _ in 0..<500 where members.count == 2 {
            if case .changed(let snapshot, _) = try register.renew(
                second.node, instance: 2, info: info(2), clock: 0, seen: 0)
            {
                members = Set(snapshot.members.keys)
            }
            Pause.milliseconds(20)
        }
        #expect(members == [second.node])
        #expect(throws: RegisterError.expired) { try register.change(first.node, instance: 1, []) }
        guard
            case .changed(let snapshot, let isRecreated) = try register.renew(
                first.node, instance: 1, info: info(1), clock: 0, seen: 0)
        else {
            Issue.record("no snapshot")
            return
        }
        #expect(isRecreated && Set(snapshot.members.keys).contains(first.node))
    }

    @Test("an unreachable server is a temporary error")
    func unreachable() throws {
        let register = RedisRegister(
            RedisCluster(
                seeds: [RedisAddress(host: "127.0.0.1", port: try FreePorts.take())], network: RedisSockets()),
            name: "none", minReplicas: 0)
        #expect {
            try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        } throws: { error in
            if case .unavailable = error as? RegisterError { true } else { false }
        }
    }

    @Test("missing replicas make a change unavailable, but its effect is visible")
    func noReplicas() throws {
        guard let server = try RedisServerProcess() else { return }
        let cluster = RedisCluster(seeds: [server.address], network: RedisSockets())
        let register = RedisRegister(
            cluster, name: "replicas", minReplicas: 1, timing: Self.timing, timeoutMilliseconds: 200)
        defer { register.close() }
        let joined = try register.join(JoinRequest(instance: 1, info: info(1), constants: constants()))
        let claim = PartChange(part: 3, from: PartEntry(), to: PartEntry(epoch: 1, state: .claimed(joined.node)))
        // On a busy machine a call may time out before it reaches the server. Then it is repeated.
        var reason = ""
        for _ in 0..<100 where !reason.contains("NOREPLICAS") {
            do throws(RegisterError) {
                _ = try register.change(joined.node, instance: 1, [claim])
                Issue.record("a change without its replicas counts")
            } catch {
                guard case .unavailable(let what) = error else { throw error }
                reason = what
            }
        }
        #expect(reason.contains("NOREPLICAS"))
        guard
            case .changed(let snapshot, _) = try register.renew(
                joined.node, instance: 1, info: info(1), clock: 0, seen: 0)
        else {
            Issue.record("no snapshot")
            return
        }
        #expect(snapshot.entries[3] == claim.to)
    }
}
