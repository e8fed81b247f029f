/// The client's bounds, each with its reason.
///
/// Times are milliseconds.
enum Limits {
    /// The protocol's default frame limit; a longer frame is an error of the peer, not a reason to allocate.
    static let frameByteCount = 64 << 10
    /// How many opened msgIds are remembered: a screen full of notifications several times over.
    static let openedCount = 256
    /// Opened msgIds that fit into one Hello (Protocol.md, "Limits"); the rest follow as Feedback.
    static let openedPerHelloCount = 32
    /// Vendor tokens in one Hello, and the bytes of a token and of its topic (Protocol.md, "Limits"): a gateway refuses a
    /// Hello beyond them as a whole.
    static let tokenCount = 16
    static let tokenByteCount = 512
    static let topicByteCount = 255
    /// Of these tokens, those of Live Activities, and the bytes of an activity's name (Protocol.md, "Limits").
    static let activityTokenCount = 8
    static let activityByteCount = 64
    /// Streams that are remembered, one position each in a Hello or an Ack; two exist today.
    static let streamCount = 8
    /// Rejections in one Ack; more of them take several.
    static let rejectedPerAckCount = 32
    /// Rejections that no Pong has confirmed yet: two windows of a gateway, one of which may be on its way.
    static let rejectionCount = 64
    /// Unicode scalars of a rejection's reason; its bytes then stay within what an Ack may carry.
    static let reasonScalarCount = 128
    /// Ranges in one position (Protocol.md, "Limits").
    static let rangeCount = 32
    /// Messages of one session that were received and not processed.
    ///
    /// The gateway's window is far below; beyond this the peer is not a gateway of ours.
    static let holeCount = 1_024
    /// Ranges of one stream that are remembered: one more than there can be holes.
    static let processedRangeCount = holeCount + 1
    /// Payloads that the app has not decided on: far above the 64 KiB of a gateway's window.
    static let handlingByteCount = 4 << 20
    /// Connecting, and from connected to Welcome: long enough for a bad mobile network, short enough to try again.
    static let connectMilliseconds: Int64 = 10_000
    static let welcomeMilliseconds: Int64 = 10_000
    /// One address of several may take this long; then the next one is tried, within the time above.
    static let addressMilliseconds: Int64 = 2_500
    /// A look-up may take this long before the addresses of an earlier one are tried, within the time above.
    static let lookUpMilliseconds: Int64 = 2_500
    /// Names whose last addresses are remembered: the gateway's and those of its alternates.
    static let knownNameCount = 16
    /// A Ping without any answer for so long means the path is dead.
    static let pongMilliseconds: Int64 = 10_000
    /// Full jitter: a random time below base · 2ⁿ, and never above the cap (Protocol.md, "The algorithm").
    static let backoffBaseMilliseconds: Int64 = 1_000
    static let backoffCapMilliseconds: Int64 = 120_000
    /// A session that lived so long makes the next failure the first one again.
    static let steadyMilliseconds: Int64 = 60_000
    /// After Close(replaced): the other session is most likely the same person's newer process.
    static let replacedMilliseconds: Int64 = 30_000
    /// A gateway may not send a client away for longer than this.
    static let retryWindowMilliseconds: Int64 = 3_600_000
    /// The heartbeat when a gateway names none.
    static let defaultHeartbeatSeconds: Int64 = 300
    /// The shortest heartbeat that a gateway grants (Protocol.md, "Limits").
    static let leastHeartbeatSeconds: UInt32 = 30
    /// Answered heartbeats before a longer one is tried, and before one that has died is tried again: a wrong guess costs
    /// a dead connection for as long as a heartbeat.
    static let answersBeforeLonger = 4
    static let answersBeforeRetrial = 32
    /// What was shown or acted on and is not reported yet; as `openedCount`.
    static let reportCount = 256
    /// Messages to the app's server that wait for the gateway, and the bytes of one and of all.
    static let outgoingCount = 128
    static let outgoingByteCount = 512 << 10
    static let outgoingPayloadByteCount = 16 << 10
    /// Results from this code on say that the message may come again, this one soon: docs/use/Errors.md, "UpdateResult and
    /// UpstreamResult codes".
    static let firstRetriedCode: UInt32 = 100
    static let busyCode: UInt32 = 102
    static let busyRetryMilliseconds: Int64 = 3_000
    static let fullRetryMilliseconds: Int64 = 60_000
    /// Threads that look up names and have not come back: a name server that does not answer holds one for minutes.
    static let backgroundThreadCount = 8
    /// Networks of which the learnt heartbeat is kept, and the bytes of a network's name.
    static let networkCount = 8
    static let networkNameByteCount = 64
    /// Reports of one HTTPS call (docs/Semantics.md, "Receipts").
    static let receiptEventCount = 32
    /// A fetch is complete when the gateway has been silent for so long: several round trips of a slow network.
    static let fetchQuietMilliseconds: Int64 = 1_500
    /// Events that wait for a loop over them; older ones are dropped.
    static let eventCount = 256
    /// Sequences are far below this; a number above it is no sequence of ours and would overflow the arithmetic.
    static let greatestSequence: UInt64 = 1 << 62
    /// What may wait for a socket that does not drain; acks and pings are small, so this much means a dead path.
    static let outboxByteCount = 1 << 20
    /// After our last words: how long the gateway may take to read them and close.
    ///
    /// Closing at once with something unread would make a reset of it, and the last ack could be lost.
    static let lingerMilliseconds: Int64 = 500
    /// The longest time that a fetch may be given.
    static let fetchMilliseconds: Int64 = 3_600_000
    /// Taps and reports that no store takes, kept in memory until one does.
    static let keptCallCount = 512
    /// Calls of the app that wait for the client's thread.
    static let commandCount = 4_096
    /// One read from the socket.
    static let readByteCount = 64 << 10
}
