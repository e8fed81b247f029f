internal import APNs
internal import Delivery
internal import Wire

package enum Limits {
    /// The size of a request body.
    ///
    /// It fits 200 batch items with a full transmission each (3,072 characters of six bytes, as PHP escapes them) and a full APNs
    /// body. Larger bodies are answered 400 with 20001 and never 413, which Getui's SDKs cannot parse. The HTTP server's own
    /// limit must therefore be higher.
    package static let requestBodyByteCount = 8 << 20
    /// The body size of a call without a token; a signature takes about two hundred bytes.
    package static let openBodyByteCount = 4 << 10
    /// The events of one receipt; with these, its body stays below `openBodyByteCount`.
    package static let receiptEventCount = 32
    package static let tagConditionCount = TagExpression.groupLimit
    /// The values of all conditions of one request, repetitions included; each is hashed.
    package static let tagValueCount = 10_000
    /// Getui: request_id has 10 to 32 characters.
    package static let requestIDCharacterCount = 10...32
    package static let requestIDByteCount = 4 * requestIDCharacterCount.upperBound
    /// The default number of messages, devices or jobs in a list of the admin API.
    package static let inspectedCount = 20
    /// Getui: items of msg_list.
    package static let batchItemCount = 200
    /// Getui: cids or aliases of one list call.
    package static let listTargetCount = 1_000
    /// Getui: tasks of one report.
    package static let reportedTaskCount = 200
    /// The greatest setting for the characters of an alias.
    package static let aliasCharacterCount = 60
    package static let groupNameByteCount = TaskBounds.groupByteCount
    /// The number of invalid `actionIdList` entries that an answer repeats.
    static let reportedActionNames = 32
    /// Getui: the age of the oldest report, in days.
    package static let reportDays: Int64 = 90
    /// Getui: items of one `user/bind_dt` call.
    package static let deviceTokenItemCount = 1_000
    /// The length of a test device's name; Getui documents no limit.
    package static let remarkCharacterCount = 200
    package static let testDevicePageCount = 1_000
    /// The greatest setting for the test devices of an app, and so for the items of one call.
    package static let testDeviceCount = 10_000
    /// Getui: characters of a transmission (Unicode scalars here).
    package static let transmissionCharacterCount = 3_072
    /// The size of a message's payload, which is kept verbatim.
    package static let payloadByteCount = MessageBounds.payloadByteCount
    /// The size of a collapse key, which is part of every queued row.
    package static let collapseKeyByteCount = MessageBounds.collapseKeyByteCount
    /// The size of a custom callback, which each event of the message repeats.
    package static let customCallbackByteCount = MessageBounds.customCallbackByteCount
    /// Apple's limit for apns-collapse-id.
    package static let apnsCollapseIDByteCount = Bounds.collapseIDByteCount
    /// Apple's limits for a notification's body.
    package static let apnsBodyByteCount = Bounds.bodyByteCount
    package static let apnsVoIPBodyByteCount = Bounds.voipBodyByteCount
    /// The size of an alert's title and body together: as much as APNs accepts, even if the APNs body has other texts.
    package static let alertByteCount = MessageBounds.alertByteCount
    /// The size of a frame's `apns` object: room for a full APNs body, even with escapes and white space.
    package static let nativeAPNsByteCount = 32 << 10
    /// A badge is a non-negative 32-bit number, so it has at most ten digits; the size check counts all ten.
    package static let badgeDigitCount = 10
    /// The most fields of each sort named in an answer, and the bytes shown of each.
    static let notedKeyCount = 64
    static let notedKeyByteCount = 64
    /// The unknown fields of all objects of a call; each is compared and may be noted.
    static let unknownFieldCount = 16_384
    /// The keys and values of a call's body, as words of the parser's tape: one for each, two for a number or a container.
    static let requestWordCount = 1 << 18
    /// Getui's bound for `ups.transmission`.
    static let upsTransmissionCharacterCount = 3_072
    /// The most options of one vendor, whose JSON pointers `optionPointerByteCount` limits; the sender has both limits, too.
    static let optionCount = 64
    /// The delay of a follow-up in seconds, at most three days.
    static let followUpSeconds: ClosedRange<Int64> = 0...259_200
    static let standardFollowUpSeconds: Int64 = 600
    static let optionPointerByteCount = 256
    /// Getui: attachments of one notification.
    package static let multimediaCount = 3
    /// Getui: three days.
    package static let timeToLive: Int64 = 259_200_000
    /// Getui's current default: two hours.
    package static let defaultTimeToLive: Int64 = 7_200_000
    /// The tolerance of a signature's timestamp; ten minutes tolerate an inaccurate clock and limit the replay of a signature.
    ///
    /// Getui documents no tolerance.
    package static let timestampTolerance: Int64 = 600_000
    /// Clock offsets up to this many milliseconds are noise, which schedules ignore.
    static let clockNoise: Int64 = 10_000
    /// Getui: a token is valid for 24 hours.
    package static let tokenLifetime: Int64 = 86_400_000
    /// The revoked tokens of one app that are remembered until they expire; a client revokes its token when it stops.
    package static let revokedTokensOfApp = 10_000
    /// The revoked tokens of all apps, which a joining gateway receives in one answer.
    package static let revokedTokens = 200_000
    /// The path segments of the longest route, with some reserve.
    package static let pathSegmentCount = 12

    /// The size of an app's id (docs/use/Operations.md, "Configuration").
    package static let appIDByteCount = 64
    /// The size of an app's settings; with three secrets of each kind and all texts they take about 4 KB.
    package static let appBodyByteCount = 16 << 10
    /// The largest pace of a drain, in devices per second, which empties the largest gateway in one second.
    static let drainPace = 1_000_000
    /// The size of an alternate address: a host name of 253 bytes, brackets, and a port, as clients limit it.
    static let alternateByteCount = Wire.Limits.alternateByteCount
    /// The length of a folder's name.
    static let backupNameByteCount = 64
    /// The size limit of a body on the admin listener; 500 results with long reasons take about 200 KB.
    package static let adminBodyByteCount = 1 << 20
    package static let waitSeconds: ClosedRange<Int64> = 0...30
    /// The length of the vendor's reason, which is stored in the trace row.
    package static let vendorReasonByteCount = 64
    /// The size limit of the hook's answer; 500 outcomes of 400 bytes take about 200 KB.
    package static let hookAnswerByteCount = 1 << 20
}
