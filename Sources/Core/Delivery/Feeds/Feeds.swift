// Feeds are the logs that an app's business server reads. Each app may have two: its devices' upstream messages, and the events
// of its messages and devices. A feed is one log in the app's home bucket, with one cursor that its consumer moves. See
// docs/build/Tasks.md, "Upstream and events".

package import Wire

/// The kind of an app's feed; raw values are part of stored keys.
package enum FeedKind: UInt8, Sendable, CaseIterable, Codable {
    case upstream = 1
    case events = 2
}

package struct FeedName: Hashable, Sendable, Codable {
    package var app: AppKey
    package var kind: FeedKind
    package init(_ app: AppKey, _ kind: FeedKind) { (self.app, self.kind) = (app, kind) }
    package var home: Bucket { app.home }
}

package struct FeedLimits: Sendable, Equatable {
    package static let counts: ClosedRange<Int64> = 1...10_000_000
    package static let byteCounts: ClosedRange<Int64> = (64 << 10)...(64 << 30)
    package static let ages: ClosedRange<Int64> = 60...2_592_000
    package static let deviceCounts: ClosedRange<Int64> = 1...Int64(UpstreamRow.entryLimit)
    package static let deviceByteCounts: ClosedRange<Int64> = Int64(MessageBounds.payloadByteCount)...(16 << 20)

    package var count = 100_000
    package var byteCount = 64 << 20
    /// The age in milliseconds at which an unread item is dropped.
    package var age: Int64 = 7 * 86_400_000
    /// The maximum number of unacked upstream items of one device.
    package var deviceCount = 128
    package var deviceByteCount = 256 << 10
    package init() {}
}

package struct FeedItem: Sendable, Equatable, Codable {
    /// Raw values are stored; the values for the end of a message are those of `FinalState`.
    package enum Kind: UInt8, Sendable, CaseIterable, Codable {
        case delivered = 1, deliveredOffline, opened, handedOff, expired, collapsed, revoked, overflowed, failed
        case online = 32
        case offline = 33
        /// The vendor accepted a message's alert.
        case alerted = 48
        /// The user saw or opened the message, or chose one of its actions.
        case shown = 49
        case clicked = 50
        case action = 51
        /// The vendor rejected a device's token as bad.
        case tokenQuarantined = 52
        case upstream = 64
    }

    package var kind: Kind
    package var at: GatewayTime
    package var cid: DeviceID
    /// The message that the event concerns; none for other items.
    package var message = MessageID.none
    /// The task of that message, or the task that an upstream message answers.
    package var task = TaskID.none
    /// The device's number for an upstream message; the detail of an event.
    package var request: UInt32 = 0
    /// An upstream message's payload, the reason of a failure, or the vendor's id of an alert.
    package var payload: [UInt8] = []
    /// The `custom_callback` of the message's push; empty without one.
    package var customCallback: [UInt8] = []
    /// Whether the message has a custom callback that is not in this item yet (`CallbackRow`).
    package var awaitsCallback = false

    package init(_ kind: Kind, at: GatewayTime, cid: DeviceID) { (self.kind, self.at, self.cid) = (kind, at, cid) }

    /// The data of an event besides its message, stored in `request`.
    package enum Detail: Sendable, Equatable {
        case none
        case channel(VendorChannel?)
        /// Whether the event concerns the vendor's alert rather than the live message, and the alert's channel.
        case ofAlert(Bool, by: VendorChannel? = nil)
        case action(UInt32)
    }

    package var detail: Detail {
        get {
            switch kind {
            case .alerted, .tokenQuarantined: .channel(.channel(ofNibble: UInt8(truncatingIfNeeded: request)))
            case .shown, .clicked:
                .ofAlert(request & 1 != 0, by: .channel(ofNibble: UInt8(truncatingIfNeeded: request >> 8)))
            case .action: .action(request)
            default: .none
            }
        }
        set {
            switch newValue {
            case .none: request = 0
            case .channel(let channel): request = UInt32(VendorChannel.nibble(of: channel))
            case .ofAlert(let isAlert, let channel):
                request = (isAlert ? 1 : 0) | UInt32(VendorChannel.nibble(of: channel)) << 8
            case .action(let number): request = number
            }
        }
    }
}

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

/// A consumer's request for the items after a cursor.
package struct FeedRead: Sendable, Equatable, Codable {
    package var feed: FeedName
    /// The number of the consumer's last item; `nil`: the last acked item.
    package var after: UInt64?
    package var limit: Int
    /// The time in ms to wait for a first item.
    package var waitMilliseconds: Int64
    package init(_ feed: FeedName, after: UInt64?, limit: Int, waitMilliseconds: Int64) {
        (self.feed, self.after, self.limit, self.waitMilliseconds) = (feed, after, limit, waitMilliseconds)
    }
}

/// A command to the shard of a feed's home; the answer is `nil` if the feed cannot be read or written now.
package enum FeedCommand: ShardQuestion {
    /// Append a device's message, deduplicated by the device's number.
    case upstream(UpstreamMessage)
    /// Append events in this order; `lost`: the number of missing events before them.
    case append(FeedName, [FeedItem], lost: UInt64)
    case read(FeedRead)
    case acknowledge(FeedName, upTo: UInt64)
    case state(FeedName)

    package var feed: FeedName {
        switch self {
        case .upstream(let message): FeedName(message.app, .upstream)
        case .append(let feed, _, _), .acknowledge(let feed, _), .state(let feed): feed
        case .read(let read): read.feed
        }
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<FeedAnswer?>) {
        shard.inFeeds { feeds, core in feeds.handle(self, reply, &core) }
    }
}

package enum FeedAnswer: Sendable, Equatable, Codable {
    /// The items are on disk, from this command or an earlier one.
    case taken
    case refused(FeedRefusal)
    case page(FeedPage)
    case acknowledged(FeedState)
    case state(FeedState)
    /// The cursor is above the highest assigned number.
    case beyond(UInt64)
    /// The cursor belongs to an earlier history of the store, which had other items.
    case otherHistory

    package var page: FeedPage? { if case .page(let page) = self { page } else { nil } }
}

package enum FeedRefusal: UInt8, Sendable, Codable, CaseIterable {
    /// The app accepts no upstream messages.
    case off
    /// The device has reached its limit of unread messages.
    case deviceFull
    /// The app has reached its limit of unread messages.
    case appFull
    /// The device used the number for another message.
    case numberReused
}

package struct FeedState: Sendable, Equatable, Codable {
    package var last: UInt64 = 0
    /// The consumer's cursor: the last acked number.
    package var acked: UInt64 = 0
    package var count: UInt64 = 0
    package var byteCount: UInt64 = 0
    package init() {}
}

package struct FeedPage: Sendable, Equatable, Codable {
    /// The number of dropped items after the cursor: expired, or beyond the limits.
    package var missed: UInt64 = 0
    package var first: UInt64
    package var items: [FeedItem] = []
    package var state: FeedState
    package init(first: UInt64, state: FeedState) { (self.first, self.state) = (first, state) }
    package var next: UInt64 { first &+ UInt64(items.count) &- 1 }
    package var isEmpty: Bool { items.isEmpty && missed == 0 }
}

package enum FeedBounds {
    /// The maximum number of items per page or `append`.
    package static let pageItems = 1_000
    package static let pageByteCount = 256 << 10
    package static let waitMilliseconds: Int64 = 30_000
    /// The maximum number of long polls per feed; further ones are answered immediately.
    static let waiters = 8
    /// The maximum number of commands that wait for heads.
    static let waitingCommands = 4_096
    static let trimmedRows = 64
    /// The interval in ms of the check for expired items.
    static let ageCheck: Int64 = 10_000
    /// The number of apps whose feeds are loaded per call after a start, and of heads retried per call.
    static let watchedApps = 16
    /// The first delay in ms after a failed read of a head or a sweep; it doubles up to `longestRest` for damaged data.
    static let lookAgain: Int64 = 10_000
    static let longestRest: Int64 = 600_000
    /// The longest delay in ms for unreadable data.
    static let longestRestOfUnread: Int64 = 30_000
    /// The time in ms, since a device's last upstream message, for which its message numbers are remembered.
    package static let numberMemory: Int64 = 86_400_000
}
