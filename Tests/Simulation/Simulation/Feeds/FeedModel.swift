internal import Delivery
internal import Wire

/// The feeds of a run: who sends upstream, who follows, and what is known of each item.
struct FeedModel {
    /// What happens next.
    enum Step {
        /// A device's turn to send.
        case send(Int)
        /// A command comes out of its home's mailbox.
        case carry(Int)
        /// A loop's tick: it takes what is durable to the feeds.
        case tell(loop: Int, life: Int)
        /// A loop learns what became of a batch.
        case told(Int, isTold: Bool)
        /// A consumer's turn.
        case follow(Int)
    }

    /// A device's messages: one at a time, each again until it is taken, as the SDK sends them.
    struct Sender {
        let identity: Identity
        /// Messages that were taken and that a restore of the store has lost.
        var lost: Set<UInt32> = []
        /// The message under way, or the next one.
        var number: UInt32 = 1
        var isOpen = false
        var askedAt: Int64 = -1
    }

    /// An app's server with one of its feeds.
    struct Follower {
        let feed: FeedName
        let app: Int
        /// The last item that it has; `nil`: it asks the gateway.
        var cursor: UInt64? = 0
        var acked: UInt64 = 0
        /// The command that it waits for.
        var asked: Int?
        var askedAt: Int64 = 0
        /// What it has read, by number: a number stands for one thing for ever.
        var items: [UInt64: FeedItem] = [:]
        /// As rows say.
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

    /// Draws of its own.
    var chance: Chance
    var senders: [Sender] = []
    /// By identity.
    var places: [Int: Int] = [:]
    var followers: [Follower] = []
    var asks: [Ask] = []
    var batches: [(batch: EventBatch, loop: Int, life: Int)] = []
    var durableUpstream: Set<Upstream> = []

    init(seed: UInt64) { chance = Chance(seed: seed ^ 0xFEED_0F5E_0D51) }

    mutating func isTime() -> Bool { chance.perMille(200) }

    /// Every app has both feeds; what devices send is held back by small limits, what happened is never left out.
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

    /// The store is what it was then: consumers keep their cursors, devices go on with their numbers.
    mutating func putBack(_ backup: FeedModel) {
        for index in followers.indices {
            let (now, then) = (followers[index], backup.followers[index])
            followers[index] = then
            (followers[index].cursor, followers[index].asked) = (now.cursor, nil)
        }
        durableUpstream = backup.durableUpstream
        for place in senders.indices {
            // One that is not known to be taken is sent again.
            let (cid, next) = (senders[place].identity.cid, senders[place].number)
            senders[place].lost = Set(
                (1..<next).filter { !durableUpstream.contains(Upstream(cid: cid, number: $0)) })
        }
    }

    func follower(of feed: FeedName) -> Int? { followers.firstIndex { $0.feed == feed } }
}
