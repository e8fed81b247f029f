/// The client's limits; times are in milliseconds.
enum Limits {
    /// The protocol's default frame limit; a longer frame is an error of the peer.
    static let frameByteCount = 64 << 10
    /// The number of opened message ids in the state: more than a screen full of notifications.
    static let openedCount = 256
    /// The maximum number of kept taps.
    ///
    /// Apps call `takeTaps` soon after their launch.
    static let tapCount = 8
    /// The maximum length of a kept tap's line in the state.
    ///
    /// A local notification with the longest payload fits. The line has two hex digits for each byte.
    static let tapByteCount = 48 << 10
    /// The maximum nesting of a notification's values, and the maximum length of a number in their stored form.
    static let valueDepth = 16
    static let valueDigitCount = 21
    /// The maximum number of files of one push, as on the gateway, and the maximum length of a file's URL.
    static let mediaCount = 3
    static let mediaAddressByteCount = 2_048
    /// The permitted number of hex digits of an APNs token.
    ///
    /// The sender has the same limits.
    static let tokenDigits = 2...512
    /// The maximum size of a provisioning profile.
    ///
    /// Typical profiles have about 20 KiB.
    static let profileByteCount = 4 << 20
    /// The maximum wait of `LongwireClient.applicationWillTerminate`.
    static let terminateMilliseconds: Int64 = 5_000
    /// Opened message ids in one Hello (Protocol.md, "Limits"); further ones are sent as Feedback.
    static let openedPerHelloCount = 32
    /// Vendor tokens in one Hello, and the bytes of a token and its topic (Protocol.md, "Limits").
    static let tokenCount = 16
    static let tokenByteCount = 1_024
    static let topicByteCount = 255
    /// Tokens of Live Activities within `tokenCount`, and the bytes of an activity's name (Protocol.md, "Limits").
    static let activityTokenCount = 8
    static let activityByteCount = 64
    /// The number of streams with a position in Hello and Ack; gateways use two.
    static let streamCount = 8
    /// Rejections in one Ack; the client sends several Acks for more.
    static let rejectedPerAckCount = 32
    /// The maximum number of rejections that no Pong has confirmed: two windows of a gateway, one of them in flight.
    static let rejectionCount = 64
    /// Unicode scalars of a rejection's reason, so that its bytes fit into an Ack.
    static let reasonScalarCount = 128
    /// Ranges in one position (Protocol.md, "Limits").
    static let rangeCount = 32
    /// Messages of one session that were received and not processed.
    ///
    /// A gateway's window is far smaller. A peer beyond this limit is not a Longwire gateway.
    static let holeCount = 1_024
    /// Remembered ranges of one stream: one more than the maximum number of holes.
    static let processedRangeCount = holeCount + 1
    /// Bytes of payloads that the app has not decided on: far above a gateway's window of 64 KiB.
    static let handlingByteCount = 4 << 20
    /// The timeouts for connecting, and for the Welcome after that: enough for a slow mobile network.
    static let connectMilliseconds: Int64 = 10_000
    static let welcomeMilliseconds: Int64 = 10_000
    /// The timeout of one address before the next one is tried, within `connectMilliseconds`.
    static let addressMilliseconds: Int64 = 2_500
    /// The time before a slow name lookup is replaced by the addresses of an earlier one, within `connectMilliseconds`.
    static let lookUpMilliseconds: Int64 = 2_500
    /// Host names whose last addresses are remembered: the gateway's and those of its alternates.
    static let knownNameCount = 16
    /// The timeout of a Ping; after it the connection counts as dead.
    static let pongMilliseconds: Int64 = 10_000
    /// Full jitter: a random time below base · 2ⁿ, and never above the cap (Protocol.md, "The algorithm").
    static let backoffBaseMilliseconds: Int64 = 1_000
    static let backoffCapMilliseconds: Int64 = 120_000
    /// The session length that resets the backoff.
    static let steadyMilliseconds: Int64 = 60_000
    /// The reconnect delay after Close(replaced): the other session is most likely a newer process of the same app.
    static let replacedMilliseconds: Int64 = 30_000
    /// The longest reconnect delay that a gateway may request.
    static let retryWindowMilliseconds: Int64 = 3_600_000
    /// The heartbeat when the gateway names none.
    static let defaultHeartbeatSeconds: Int64 = 300
    /// The shortest heartbeat that a gateway grants (Protocol.md, "Limits").
    static let leastHeartbeatSeconds: UInt32 = 30
    /// Answered heartbeats before a longer one is tried, and before a failed one is retried.
    ///
    /// A failed attempt leaves the connection dead for one heartbeat.
    static let answersBeforeLonger = 4
    static let answersBeforeRetrial = 32
    /// Pending reports of shown messages and actions.
    static let reportCount = 256
    /// Messages to the app's server that wait for the gateway: their number, all their bytes, and the bytes of one.
    static let outgoingCount = 128
    static let outgoingByteCount = 512 << 10
    static let outgoingPayloadByteCount = 16 << 10
    /// The maximum number of queued requests about names, including the one in flight.
    static let namesCount = 32
    /// The maximum total length of the names in one request, which must fit a frame (`Wire.Limits.clientBodyByteCount`).
    static let namesByteCount = 28 << 10
    /// The timeout of a request about names within a session.
    static let namesMilliseconds: Int64 = 30_000
    /// Result codes from `firstRetriedCode` on allow a retry, `busyCode` after a short delay (docs/use/Errors.md, "UpdateResult
    /// and UpstreamResult codes").
    static let firstRetriedCode: UInt32 = 100
    static let busyCode: UInt32 = 102
    static let busyRetryMilliseconds: Int64 = 3_000
    static let fullRetryMilliseconds: Int64 = 60_000
    /// Threads in name lookups; an unresponsive name server blocks a lookup for minutes.
    static let backgroundThreadCount = 8
    /// Networks whose learnt heartbeat is kept, and the bytes of a network's name.
    static let networkCount = 8
    static let networkNameByteCount = 64
    /// Reports in one HTTPS call (docs/Semantics.md, "Receipts").
    static let receiptEventCount = 32
    /// The silence of the gateway that completes a fetch: several round trips of a slow network.
    static let fetchQuietMilliseconds: Int64 = 1_500
    /// Events that wait for the app's loop; older ones are dropped.
    static let eventCount = 256
    /// The greatest valid sequence; larger numbers would overflow the arithmetic.
    static let greatestSequence: UInt64 = 1 << 62
    /// Unsent bytes of a connection; Acks and Pings are small, so this many mean a dead connection.
    static let outboxByteCount = 1 << 20
    /// The time that the gateway has to read the last bytes and close its side.
    ///
    /// An immediate close with unread bytes would reset the connection, and the last ack could be lost.
    static let lingerMilliseconds: Int64 = 500
    /// The longest duration of a fetch.
    static let fetchMilliseconds: Int64 = 3_600_000
    /// Calls that the store does not accept, kept in memory.
    static let keptCallCount = 512
    /// Calls of the app in the client's mailbox.
    static let commandCount = 4_096
    /// Bytes of one read from the socket.
    static let readByteCount = 64 << 10
}
