import TestKit
import Testing
import Wire

@testable import Delivery

/// Backups that are put back in the middle of everything else, with clients that keep what a real one keeps.
@Suite("Restores among random steps") struct RestoreModelTests {
    /// A client: what it has processed of each stream, under which epoch.
    private struct Client {
        var phone: Phone
        var isConnected = true
        var epoch: UInt64
        var positions: [UInt32: UInt64] = [:]
        /// In which history of the store each message was handled last.
        var handled: [String: Int] = [:]
        /// What the gateway has accepted for it, as its store has it now.
        var accepted: Set<String> = []
    }

    private struct Backup {
        var rows: MemoryShardStore.Backup
        var accepted: [Set<String>]
    }

    /// Runs one seed.
    ///
    /// - Parameters:
    ///   - seed: names the run.
    ///   - isRenewed: a restore begins another history, as it has to.
    /// - Returns: what is wrong, and how many restores there were.
    private static func run(seed: UInt64, isRenewed: Bool = true) -> (wrong: String?, restores: Int) {
        var random = SeededGenerator(seed: seed)
        var limits = ShardLimits()
        limits.sequenceBlock = [1, 8, 1_024].randomElement(using: &random)!
        limits.cachedDeviceCount = [0, 1, 1_000].randomElement(using: &random)!
        limits.window = [1, 4, 32].randomElement(using: &random)!
        let harness = DeliveryHarness(limits: limits)
        let world = BroadcastHarness(harness)
        var clients: [Client] = []
        for _ in 0..<3 {
            let phone = harness.register()
            clients.append(Client(phone: phone, epoch: harness.welcomes.last?.welcome.queueEpoch ?? 0))
        }
        var backups = [Backup(rows: harness.store.backup, accepted: clients.map(\.accepted))]
        var (history, number, wrong) = (0, 0, String?.none)

        func handle(acks: Bool) {
            for delivery in harness.takeDelivered() {
                guard let index = clients.firstIndex(where: { $0.isConnected && $0.phone.session == delivery.session })
                else { continue }
                let stream = delivery.stream
                guard delivery.sequence > clients[index].positions[stream] ?? 0 else { continue }
                if clients[index].handled[delivery.payload] == history {
                    wrong = wrong ?? "\(delivery.payload) came twice to client \(index)"
                }
                clients[index].handled[delivery.payload] = history
                clients[index].positions[stream] = delivery.sequence
            }
            for close in harness.closes {
                if let index = clients.firstIndex(where: { $0.phone.session == close.session }) {
                    clients[index].isConnected = false
                }
            }
            harness.closes.removeAll()
            guard acks else { return }
            for client in clients where client.isConnected {
                if let position = client.positions[0] { harness.acknowledge(client.phone, position) }
                if let position = client.positions[1] { world.acknowledge(client.phone, position) }
            }
        }
        /// Whatever the window lets through, until nothing comes any more.
        func settle() {
            repeat { handle(acks: true) } while !harness.delivered.isEmpty
        }
        func connect(_ index: Int) {
            let client = clients[index]
            harness.connect(&clients[index].phone) {
                $0.queueEpoch = client.epoch
                $0.positions = client.positions.sorted { $0.key < $1.key }.map {
                    StreamPosition(stream: $0.key, sequence: $0.value)
                }
            }
            guard let last = harness.welcomes.last, last.session == clients[index].phone.session else { return }
            clients[index].isConnected = true
            guard last.welcome.queueEpoch != client.epoch else { return }
            (clients[index].epoch, clients[index].positions) = (last.welcome.queueEpoch, [:])
        }
        func leaveAll() { for index in clients.indices { clients[index].isConnected = false } }

        for _ in 0..<150 where wrong == nil {
            let who = clients.indices.randomElement(using: &random)!
            switch Int.random(in: 0..<20, using: &random) {
            case 0...6:
                number += 1
                let text = "push \(number)"
                if harness.publish(clients[who].phone, text, timeToLive: 86_400_000, vendor: false).code == .accepted {
                    clients[who].accepted.insert(text)
                }
            case 7...8:
                number += 1
                let text = "cast \(number)"
                world.send(text, timeToLive: 86_400_000, vendor: false)
                for index in clients.indices { clients[index].accepted.insert(text) }
            case 9...11: handle(acks: Bool.random(using: &random))
            case 12...13: if !clients[who].isConnected { connect(who) }
            case 14:
                if clients[who].isConnected { harness.disconnect(clients[who].phone) }
                clients[who].isConnected = false
            case 15:
                harness.crash()
                leaveAll()
            case 16: backups.append(Backup(rows: harness.store.backup, accepted: clients.map(\.accepted)))
            case 17:
                guard Bool.random(using: &random), let backup = backups.randomElement(using: &random) else { break }
                harness.store.restore(backup.rows)
                history += 1
                harness.crash(
                    history: isRenewed
                        ? harness.history.successor(id: UInt64.random(in: 1 ... .max, using: &random), now: 0) : nil)
                leaveAll()
                for index in clients.indices { clients[index].accepted = backup.accepted[index] }
                harness.delivered.removeAll()
            case 18: harness.store.cool()
            default: harness.advance(Int64.random(in: 1...3_000, using: &random))
            }
        }
        for index in clients.indices where !clients[index].isConnected { connect(index) }
        settle()
        for (index, client) in clients.enumerated() {
            let missing = client.accepted.filter { client.handled[$0] == nil }.sorted()
            if !missing.isEmpty { wrong = wrong ?? "client \(index) never got \(missing)" }
        }
        if let imbalance = harness.imbalance() { wrong = wrong ?? imbalance }
        return (wrong, history)
    }

    @Test("what is accepted after a restore is delivered once, to clients that remember the history before")
    func onceInEachHistory() {
        var restores = 0
        for seed in 1...300 as ClosedRange<UInt64> {
            let found = Self.run(seed: seed)
            #expect(found.wrong == nil, "seed \(seed)")
            restores += found.restores
        }
        #expect(restores > 300)
    }

    @Test("the model notices a restore that does not begin another history")
    func notices() {
        let found = (1...60 as ClosedRange<UInt64>).compactMap { Self.run(seed: $0, isRenewed: false).wrong }
        #expect(found.contains { $0.contains("\"push") } && found.contains { $0.contains("\"cast") })
    }
}
