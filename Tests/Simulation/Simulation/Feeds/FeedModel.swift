internal import Delivery
internal import Wire

/// The feeds of a run: devices that send upstream, consumers, and the state of each item.
struct FeedModel {
    enum Step {
        /// A device's turn to send.
        case send(Int)
        /// A command leaves its home's mailbox.
        case carry(Int)
        /// A loop's tick, which forwards durable items to the feeds.
        case tell(loop: Int, life: Int)
        /// The result of a batch reaches its loop.
        case told(Int, isTold: Bool)
        /// A consumer's turn.
        case follow(Int)
    }

    /// A device's upstream messages, one at a time; each is repeated until it is accepted, as the SDK does.
    struct Sender {
        let identity: Identity
        /// Accepted messages that a restore of the store has lost.
        var lost: Set<UInt32> = []
        /// The message in flight, or the next one.
        var number: UInt32 = 1
        var isOpen = false
        var askedAt: Int64 = -1
    }

    /// An app's server with one of its feeds.
    struct Follower {
        let feed: FeedName
        let app: Int
        /// The last item read; `nil` if the consumer must ask the gateway.
        var cursor: UInt64? = 0
        var acked: UInt64 = 0
        /// The pending command.
        var asked: Int?
        var askedAt: Int64 = 0
        /// The items read so far, by number; a number identifies one item permanently.
        var items: [UInt64: FeedItem] = [:]
        var durableLast: UInt64 = 0
    }

    enum Purpose {
        case upstream(Int, number: UInt32)
        case read(Int, after: UInt64?)
        case acknowledge(Int, upTo: UInt64)
        case append(Int)
    }

    struct Ask {
        var purpose: Purpose
        var command: FeedCommand
        var life: Int
    }

    struct Upstream: Hashable {
        var cid: DeviceID
        var number: UInt32
    }

    /// The generator of this part only.
    var chance: Chance
    var senders: [Sender] = []
    /// The index of the sender by identity.
    var places: [Int: Int] = [:]
    var followers: [Follower] = []
    var asks: [Ask] = []
    var batches: [(batch: EventBatch, loop: Int, life: Int)] = []
    var durableUpstream: Set<Upstream> = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0xFEED_0F5E_0D51) }

    mutating func isTime() -> Bool { chance.perMille(200) }

    /// Gives every app both feeds; small limits throttle upstream messages, but events are never omitted.
    mutating func configure(_ apps: inout [AppSettings]) {
        for index in apps.indices {
            var limits = FeedLimits()
            limits.age = FeedLimits.ages.upperBound * 1_000
            apps[index].events = limits
            limits.count = chance.one(of: [5, 40, 10_000])
            limits.deviceCount = chance.one(of: [2, 12, 128])
            apps[index].upstream = limits
            for kind in FeedKind.allCases {
                followers.append(Follower(feed: FeedName(apps[index].key, kind), app: index))
            }
        }
    }

    /// Restores the feed rows; consumers keep their cursors, and devices keep their numbers.
    mutating func putBack(_ backup: FeedModel) {
        for index in followers.indices {
            let (now, then) = (followers[index], backup.followers[index])
            followers[index] = then
            (followers[index].cursor, followers[index].asked) = (now.cursor, nil)
        }
        durableUpstream = backup.durableUpstream
        for place in senders.indices {
            // A message without a known acceptance is sent again.
            let (cid, next) = (senders[place].identity.cid, senders[place].number)
            senders[place].lost = Set(
                (1..<next).filter { !durableUpstream.contains(Upstream(cid: cid, number: $0)) })
        }
    }

    func follower(of feed: FeedName) -> Int? { followers.firstIndex { $0.feed == feed } }
}
