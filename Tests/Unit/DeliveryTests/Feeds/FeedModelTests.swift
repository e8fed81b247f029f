import Delivery
import TestKit
import Testing
import Wire

/// Devices that send, lose answers and retry, a consumer that reads and acks, and a process that crashes, compared with the list
/// of accepted messages.
@Suite("Feeds against a model")
struct FeedModelTests {
    private struct Device {
        var cid: DeviceID
        /// The number in flight or to be sent next.
        var number: UInt32 = 1
        var asked: UInt64?
        /// The items that the consumer has read, in order.
        var got: [UInt32] = []
    }

    private struct World {
        let harness: DeliveryHarness
        var random: SeededGenerator
        var devices: [Device]
        var cursor: UInt64 = 0
        var acked: UInt64 = 0
        let feed = FeedName(DeliveryHarness.app, .upstream)

        init(seed: UInt64) {
            var limits = FeedLimits()
            (limits.count, limits.deviceCount) = (40, 12)
            let chosen = limits
            harness = DeliveryHarness { $0.upstream = chosen }
            random = SeededGenerator(seed: seed)
            devices = (0..<4).map { Device(cid: DeviceID(high: 5, low: $0)) }
        }

        mutating func ask(_ command: FeedCommand) -> UInt64 {
            let number = harness.begin(command)
            harness.drain()
            return number
        }

        mutating func send(_ place: Int) {
            guard devices[place].asked == nil else { return }
            let device = devices[place]
            let message = UpstreamMessage(
                app: DeliveryHarness.app, cid: device.cid, request: device.number,
                payload: [UInt8(truncatingIfNeeded: device.number)])
            devices[place].asked = ask(.upstream(message))
        }

        /// Processes all answers received so far.
        mutating func collect() {
            for place in devices.indices {
                guard let asked = devices[place].asked, let answer = harness.answers[asked] else { continue }
                devices[place].asked = nil
                switch answer as? FeedAnswer {
                case .taken: devices[place].number += 1
                case .refused(.deviceFull), .refused(.appFull), nil: break
                default: Issue.record("\(answer)")
                }
            }
        }

        mutating func crash() {
            collect()
            harness.crash()
            // Its answers are lost: the devices send again, and the consumer reads from its last ack.
            for place in devices.indices { devices[place].asked = nil }
        }

        mutating func read() {
            let asked = ask(.read(FeedRead(feed, after: cursor, limit: 7, waitMilliseconds: 0)))
            harness.flush()
            collect()
            guard case .page(let page)? = harness.answer(asked, as: FeedAnswer.self) else {
                Issue.record("no page: \(String(describing: harness.answers[asked]))")
                return
            }
            #expect(page.missed == 0 && (page.items.isEmpty || page.first == cursor + 1))
            for item in page.items {
                guard let place = devices.firstIndex(where: { $0.cid == item.cid }) else {
                    Issue.record("a stranger's")
                    continue
                }
                // In order, without gaps or duplicates.
                #expect(item.request == (devices[place].got.last ?? 0) + 1)
                devices[place].got.append(item.request)
            }
            cursor = page.next
        }

        mutating func acknowledge() {
            let asked = ask(.acknowledge(feed, upTo: cursor))
            harness.flush()
            collect()
            guard case .acknowledged(let state)? = harness.answer(asked, as: FeedAnswer.self) else {
                Issue.record("not acked")
                return
            }
            acked = cursor
            #expect(state.acked == acked)
        }
    }

    @Test("no accepted message is lost, duplicated or reordered, in any order of steps", arguments: 1...60)
    func model(seed: Int) {
        var world = World(seed: UInt64(seed))
        for _ in 0..<400 {
            switch Int.random(in: 0..<20, using: &world.random) {
            case 0..<9: world.send(Int.random(in: 0..<4, using: &world.random))
            case 9..<12:
                world.harness.store.sync()
                world.harness.drain()
                world.collect()
            case 12..<14:
                world.harness.store.deliverReplies()
                world.harness.drain()
                world.collect()
            case 14..<17: world.read()
            case 17: world.acknowledge()
            case 18:
                world.harness.advance(1_000)
                world.collect()
            default: world.crash()
            }
        }
        world.crash()
        for _ in 0..<40 {
            world.read()
            world.acknowledge()
        }
        for device in world.devices {
            // The message in flight may have been accepted, and its answer lost.
            let count = UInt32(device.got.count)
            #expect(count == device.number - 1 || count == device.number)
        }
        #expect(world.harness.shard.statistics.feedItemsMissed == 0)
        #expect(world.harness.rowCount(.feed) == 1, "the head alone")
    }
}
