// Feeds: what an app's business server follows. Each app may have two, its devices' upstream messages and the events of
// its messages and devices. A feed is one log in the app's home bucket, with one cursor that its consumer moves.
// See docs/build/Tasks.md, "Upstream and events".

package import Wire

/// Which log of an app.
///
/// Raw values are part of stored keys.
package enum FeedKind: UInt8, Sendable, CaseIterable, Codable {
    case upstream = 1
    case events = 2
}

/// One app's log.
package struct FeedName: Hashable, Sendable, Codable {
    package var app: AppKey
    package var kind: FeedKind
    package init(_ app: AppKey, _ kind: FeedKind) { (self.app, self.kind) = (app, kind) }
    /// Where its rows are.
    package var home: Bucket { app.home }
}

/// How much a feed keeps for a consumer that is away.
package struct FeedLimits: Sendable, Equatable {
    package static let counts: ClosedRange<Int64> = 1...10_000_000
    package static let byteCounts: ClosedRange<Int64> = (64 << 10)...(64 << 30)
    package static let ages: ClosedRange<Int64> = 60...2_592_000
    package static let deviceCounts: ClosedRange<Int64> = 1...Int64(UpstreamRow.entryLimit)
    package static let deviceByteCounts: ClosedRange<Int64> = Int64(MessageBounds.payloadByteCount)...(16 << 20)

    /// Items that the consumer has not acked.
    package var count = 100_000
    package var byteCount = 64 << 20
    /// Milliseconds after which an item goes unread.
    package var age: Int64 = 7 * 86_400_000
    /// Upstream: unacked items of one device.
    package var deviceCount = 128
    package var deviceByteCount = 256 << 10
    package init() {}
}

/// One thing that a feed tells.
package struct FeedItem: Sendable, Equatable, Codable {
    /// Raw values are stored; those of a message's end are `FinalState`'s.
    package enum Kind: UInt8, Sendable, CaseIterable, Codable {
        case delivered = 1, deliveredOffline, opened, handedOff, expired, collapsed, revoked, overflowed, failed
        case online = 32
        case offline = 33
        case upstream = 64
    }

    package var kind: Kind
    package var at: GatewayTime
    package var cid: DeviceID
    /// Of the message that ended; none for others.
    package var message = MessageID.none
    /// Of the message that ended, or the one that an upstream message answers.
    package var task = TaskID.none
    /// The device's number for an upstream message.
    package var request: UInt32 = 0
    /// An upstream message's payload, or why a message failed.
    package var payload: [UInt8] = []

    package init(_ kind: Kind, at: GatewayTime, cid: DeviceID) { (self.kind, self.at, self.cid) = (kind, at, cid) }
}

/// A message from a device.
package struct UpstreamMessage: Sendable, Equatable, Codable {
    package var app: AppKey
    package var cid: DeviceID
    package var request: UInt32
    package var payload: [UInt8]
    package var task: TaskID
    package init(app: AppKey, cid: DeviceID, request: UInt32, payload: [UInt8], task: TaskID = .none) {
        (self.app, self.cid, self.request, self.payload, self.task) = (app, cid, request, payload, task)
    }
}

/// A consumer asks for what follows a place.
package struct FeedRead: Sendable, Equatable, Codable {
    package var feed: FeedName
    /// The number of the last item that the consumer has; `nil`: the last that it acked.
    package var after: UInt64?
    package var limit: Int
    /// How long to wait for a first item.
    package var waitMilliseconds: Int64
    package init(_ feed: FeedName, after: UInt64?, limit: Int, waitMilliseconds: Int64) {
        (self.feed, self.after, self.limit, self.waitMilliseconds) = (feed, after, limit, waitMilliseconds)
    }
}

/// A command to the shard of a feed's home; as `TaskCommand.feed`.
package enum FeedCommand: Sendable, Codable {
    /// Takes a device's message, once for each number of the device.
    case upstream(UpstreamMessage)
    /// Appends what happened, in this order; `lost`: how many events are missing before it.
    case append(FeedName, [FeedItem], lost: UInt64)
    case read(FeedRead)
    /// The consumer has everything up to this number.
    case acknowledge(FeedName, upTo: UInt64)
    case state(FeedName)

    package var feed: FeedName {
        switch self {
        case .upstream(let message): FeedName(message.app, .upstream)
        case .append(let feed, _, _), .acknowledge(let feed, _), .state(let feed): feed
        case .read(let read): read.feed
        }
    }
}

package enum FeedAnswer: Sendable, Equatable, Codable {
    /// It is on disk, from this command or an earlier one.
    case taken
    case refused(FeedRefusal)
    case page(FeedPage)
    case acknowledged(FeedState)
    case state(FeedState)
    /// The cursor is above the highest number given.
    case beyond(UInt64)
    /// The cursor is of an earlier history of the store, whose items are others.
    case otherHistory
}

package enum FeedRefusal: UInt8, Sendable, Codable, CaseIterable {
    /// The app takes no upstream messages.
    case off
    /// The device has as many unread messages as it may.
    case deviceFull
    /// The app has.
    case appFull
    /// The number was another message's a moment ago.
    case numberReused
}

/// How far a feed is.
package struct FeedState: Sendable, Equatable, Codable {
    /// The highest number given.
    package var last: UInt64 = 0
    /// The consumer has everything up to it.
    package var acked: UInt64 = 0
    /// Items and bytes that are stored.
    package var count: UInt64 = 0
    package var byteCount: UInt64 = 0
    package init() {}
}

/// Items in order.
package struct FeedPage: Sendable, Equatable, Codable {
    /// Items right behind the cursor that went unread: too old, or too many.
    package var missed: UInt64 = 0
    /// The number of the first item.
    package var first: UInt64
    package var items: [FeedItem] = []
    package var state: FeedState
    package init(first: UInt64, state: FeedState) { (self.first, self.state) = (first, state) }
    /// The cursor behind the page.
    package var next: UInt64 { first &+ UInt64(items.count) &- 1 }
    package var isEmpty: Bool { items.isEmpty && missed == 0 }
}

/// Bounds of what a feed does at once.
package enum FeedBounds {
    /// Items of one page, or of one `append`.
    package static let pageItems = 1_000
    package static let pageByteCount = 256 << 10
    package static let waitMilliseconds: Int64 = 30_000
    /// Long polls of one feed; more are answered at once.
    static let waiters = 8
    /// Commands that wait for a feed's first row to be read.
    static let waitingCommands = 4_096
    /// Rows that one step removes.
    static let trimmedRows = 64
    /// How often a feed that is at rest is looked over for items that are too old.
    static let ageCheck: Int64 = 10_000
    /// Apps whose feeds are looked for in one call after a start, and feeds that are looked for again in one call.
    static let watchedApps = 16
    /// How long a head or a sweep rests after a look that failed; twice as long after the next one, up to `longestRest` of what is damaged.
    static let lookAgain: Int64 = 10_000
    static let longestRest: Int64 = 600_000
    /// The same of what is not damaged, and could not be read.
    static let longestRestOfUnread: Int64 = 30_000
    /// A device's numbers are remembered for so long, and at least the last 64 of them.
    package static let numberMemory: Int64 = 86_400_000
}
