import Delivery
import Directory
import TestKit
import Testing
import Wire

@Suite("Operations on aliases") struct AliasOperationTests {
    static let names = (0..<4).map { AliasName(high: UInt64($0 * 700 + 3) << 52 | 1, low: UInt64($0), text: "n\($0)") }

    static func place(_ phone: Phone) -> DevicePlace { DevicePlace(cid: phone.cid, bucket: phone.bucket) }
    static func item(_ phone: Phone, _ name: AliasName) -> AliasItem { AliasItem(device: place(phone), name: name) }

    static func holder(_ carrier: Carrier, _ phone: Phone) -> AliasName? {
        guard case .device(let detail)? = carrier.run(.each([place(phone)], .describe)).outcomes.first else {
            return nil
        }
        return detail.alias()
    }

    @Test("a bound alias resolves, is moved, unbound, and unbound for all")
    func plain() {
        let carrier = Carrier()
        let phones = (0..<3).map { _ in carrier.harness.register() }
        let (first, second) = (Self.names[0], Self.names[1])
        #expect(carrier.run(.bind(phones.map { Self.item($0, first) })).outcomes == [.done, .done, .done])
        #expect(carrier.members(first) == phones.map(Self.place))
        #expect(carrier.run(.bind([Self.item(phones[0], second)])).outcomes == [.done])
        #expect(carrier.members(first) == phones.dropFirst().map(Self.place))
        let several = carrier.run(.resolve([second, Self.names[2], first]))
        #expect(several.members == [[Self.place(phones[0])], [], phones.dropFirst().map(Self.place)])
        #expect(carrier.members(second) == [Self.place(phones[0])])
        // The alias left no trace in the row of the first one.
        #expect(carrier.entries(first).map(\.cid) == phones.dropFirst().map(\.cid))
        let unbound = carrier.run(.unbind([Self.item(phones[1], first), Self.item(phones[0], first)]))
        #expect(unbound.outcomes == [.done, .notHeld])
        #expect(carrier.members(first) == [Self.place(phones[2])])
        #expect(carrier.run(.unbindAll(first)).outcomes == [.done])
        #expect(carrier.members(first).isEmpty && carrier.entries(first).isEmpty)
        #expect(carrier.run(.unbindAll(first)).outcomes == [.done])
        #expect(Self.holder(carrier, phones[2]) == nil)
    }

    @Test("an unknown cid is not bound and keeps no place")
    func unknown() {
        let carrier = Carrier()
        let nobody = AliasItem(
            device: DevicePlace(cid: DeviceID(high: 5, low: 5), bucket: Bucket(1)), name: Self.names[0])
        #expect(carrier.run(.bind([nobody])).outcomes == [.unknown])
        #expect(carrier.entries(Self.names[0]).isEmpty)
        #expect(carrier.run(.unbind([nobody])).outcomes == [.unknown])
    }

    @Test("a full alias accepts no more devices, but releases reservations that its devices do not confirm")
    func full() {
        var limits = ShardLimits()
        limits.devicesPerAlias = 2
        let carrier = Carrier(limits: limits)
        let phones = (0..<4).map { _ in carrier.harness.register() }
        let name = Self.names[0]
        #expect(carrier.run(.bind(phones[..<2].map { Self.item($0, name) })).outcomes == [.done, .done])
        #expect(carrier.run(.bind([Self.item(phones[2], name)])).outcomes == [.full])
        // A reservation without its second step, as a crash leaves it.
        #expect(carrier.run(.unbind([Self.item(phones[1], name)])).outcomes == [.done])
        _ = carrier.harness.ask(.reserve(name, phones[3].cid, phones[3].bucket), name.bucket)
        #expect(carrier.entries(name).count == 2 && carrier.members(name) == [Self.place(phones[0])])
        #expect(carrier.run(.bind([Self.item(phones[2], name)])).outcomes == [.full])
        carrier.harness.advance(31_000)
        #expect(carrier.run(.bind([Self.item(phones[2], name)])).outcomes == [.done])
        #expect(carrier.members(name) == [phones[0], phones[2]].map(Self.place))
    }

    @Test("a failing disk fails the operation, and no missing device goes unreported")
    func failures() {
        let carrier = Carrier()
        let phones = (0..<2).map { _ in carrier.harness.register() }
        let name = Self.names[0]
        _ = carrier.run(.bind(phones.map { Self.item($0, name) }))
        carrier.harness.store.cool()
        carrier.harness.crash()
        carrier.harness.store.readsFailFrom = 0
        #expect(carrier.run(.resolve([name])).outcomes == [.failed])
        #expect(carrier.run(.bind([Self.item(phones[0], Self.names[1])])).outcomes == [.failed])
        #expect(carrier.run(.unbindAll(name)).outcomes == [.failed])
        #expect(carrier.run(.count(TagExpression())).outcomes == [.failed])
        carrier.harness.store.readsFailFrom = .max
        #expect(Set(carrier.members(name)) == Set(phones.map(Self.place)))
    }

    // Goal: an alias's row names every device that has the alias, within its bound, for any interleaving of operations and any
    // crash.
    //
    // Method: random operations. Their steps are sent and their replies are processed in random order, with crashes, cold rows
    // and passing time.
    @Test("with any interleaving and any crash the index misses no device", arguments: 0..<40)
    func interleavings(seed: UInt64) {
        var random = Seeded(state: seed &* 0x51ED &+ 9)
        var limits = ShardLimits()
        limits.devicesPerAlias = 3
        let carrier = Carrier(limits: limits)
        let phones = (0..<6).map { _ in carrier.harness.register() }
        for _ in 0..<220 {
            switch Int.random(in: 0..<40, using: &random) {
            case 0..<8:
                let phone = phones.randomElement(using: &random)!, name = Self.names.randomElement(using: &random)!
                switch Int.random(in: 0..<10, using: &random) {
                case 0, 1: carrier.begin(.unbind([Self.item(phone, name)]))
                case 2: carrier.begin(.unbindAll(name))
                case 3: carrier.begin(.bind(phones.prefix(4).map { Self.item($0, name) }))
                default: carrier.begin(.bind([Self.item(phone, name)]))
                }
            case 8: carrier.harness.store.cool { _ in Bool.random(using: &random) }
            case 9: carrier.harness.advance(Int64.random(in: 1...20_000, using: &random))
            case 10 where Int.random(in: 0..<4, using: &random) == 0: carrier.crash()
            case 11..<26: carrier.sendOne(&random)
            default: carrier.takeOne(&random)
            }
        }
        if Bool.random(using: &random) { carrier.crash() }
        carrier.finish()
        for name in Self.names {
            let holders = phones.filter { Self.holder(carrier, $0) == name }.map(Self.place)
            #expect(Set(carrier.members(name)) == Set(holders), "seed \(seed), \(name.text)")
            #expect(holders.count <= limits.devicesPerAlias, "seed \(seed), \(name.text)")
            #expect(carrier.entries(name).count <= limits.devicesPerAlias, "seed \(seed), \(name.text)")
        }
        // Stale reservations do not keep their places permanently.
        carrier.harness.advance(31_000)
        for name in Self.names {
            #expect(carrier.run(.unbindAll(name)).outcomes == [.done])
            let outcomes = carrier.run(.bind(phones.prefix(3).map { Self.item($0, name) })).outcomes
            #expect(outcomes == [.done, .done, .done], "seed \(seed), \(name.text)")
        }
    }
}

/// Runs operations on one shard as the gateway does, step by step where a test needs it.
final class Carrier {
    private struct Open {
        var operation: DirectoryOperation
        var unsent: [StepToSend]
        /// Sent steps: the harness's number and the operation's.
        var sent: [(number: UInt64, request: UInt64)] = []
    }

    let harness: DeliveryHarness
    private var open: [Open] = []

    init(limits: ShardLimits = ShardLimits()) { harness = DeliveryHarness(limits: limits) }

    func begin(_ work: DirectoryOperation.Work) {
        var operation = DirectoryOperation(work, loopCount: 1)
        let steps = operation.start()
        open.append(Open(operation: operation, unsent: steps))
    }

    private func send(_ step: StepToSend) -> UInt64 {
        if case .bucket(let bucket) = step.target { return harness.send(step.step, to: bucket) }
        return harness.send(step.step, to: Bucket(0))
    }

    func sendOne(_ random: inout some RandomNumberGenerator) {
        guard let index = open.indices.filter({ !open[$0].unsent.isEmpty }).randomElement(using: &random),
            let place = open[index].unsent.indices.randomElement(using: &random)
        else { return }
        let step = open[index].unsent.remove(at: place)
        open[index].sent.append((send(step), step.request))
    }

    /// Completes disk work and processes one of the available replies.
    func takeOne(_ random: inout some RandomNumberGenerator) {
        harness.flush()
        guard let index = open.indices.filter({ !open[$0].sent.isEmpty }).randomElement(using: &random),
            let place = open[index].sent.indices.randomElement(using: &random)
        else { return }
        take(index, place)
        if open[index].operation.isDone { open.remove(at: index) }
    }

    private func take(_ index: Int, _ place: Int) {
        let (number, request) = open[index].sent.remove(at: place)
        guard let reply = harness.directoryReplies.removeValue(forKey: number) else {
            Issue.record("a step was not answered")
            return
        }
        open[index].unsent += open[index].operation.receive(request, reply)
    }

    /// Crashes the process with all operations in flight.
    func crash() {
        open = []
        harness.crash()
        harness.directoryReplies = [:]
    }

    func finish() {
        while let index = open.indices.last {
            while let step = open[index].unsent.popLast() { open[index].sent.append((send(step), step.request)) }
            harness.flush()
            while !open[index].sent.isEmpty { take(index, 0) }
            if open[index].operation.isDone { open.remove(at: index) }
        }
    }

    func run(_ work: DirectoryOperation.Work) -> DirectoryOperation {
        var operation = DirectoryOperation(work, loopCount: 1)
        var unsent = operation.start()
        while !operation.isDone {
            let sent = unsent.map { (send($0), $0.request) }
            unsent = []
            harness.flush()
            guard !sent.isEmpty else {
                Issue.record("an operation waits for nothing")
                break
            }
            for (number, request) in sent {
                guard let reply = harness.directoryReplies.removeValue(forKey: number) else {
                    Issue.record("a step was not answered")
                    continue
                }
                unsent += operation.receive(request, reply)
            }
        }
        return operation
    }

    func members(_ name: AliasName) -> [DevicePlace] { run(.resolve([name])).members[0] }

    func entries(_ name: AliasName) -> [AliasEntry] {
        if case .members(let entries)? = harness.ask(.members(name), name.bucket) { return entries }
        return []
    }
}

struct Seeded: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }
}
