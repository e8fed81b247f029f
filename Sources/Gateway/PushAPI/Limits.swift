internal import APNs
internal import Delivery
internal import Wire

/// The bounds of this module, with the reason for each.
package enum Limits {
    /// A request body.
    ///
    /// 200 batch items of a full transmission (3,072 characters of six bytes each, as PHP escapes them) and a full APNs
    /// body fit, with room. Larger ones are answered 400 with 20001, never 413, which Getui's SDKs cannot read; the
    /// HTTP server's own cap must therefore be higher.
    package static let requestBodyByteCount = 8 << 20
    /// A body of a call that needs no token: a sign takes some two hundred bytes.
    package static let openBodyByteCount = 4 << 10
    /// Events of one receipt: with these its body stays below `openBodyByteCount`.
    package static let receiptEventCount = 32
    /// Conditions of one expression over tags.
    package static let tagConditionCount = TagExpression.groupLimit
    /// Values of all conditions of one request, repetitions included: each is hashed.
    package static let tagValueCount = 10_000
    /// Getui: request_id has 10 to 32 characters.
    package static let requestIDCharacterCount = 10...32
    /// Bytes of the longest request id.
    package static let requestIDByteCount = 4 * requestIDCharacterCount.upperBound
    /// Messages, devices or jobs that the admin API lists when the caller names no number.
    package static let inspectedCount = 20
    /// Getui: msg_list.
    package static let batchItemCount = 200
    /// Getui: cids or aliases of one list call.
    package static let listTargetCount = 1_000
    /// Getui: tasks of one report.
    package static let reportedTaskCount = 200
    /// Getui: an alias has fewer than 40 characters, of up to three bytes each.
    package static let aliasByteCount = 120
    /// Getui: a group's name.
    package static let groupNameByteCount = TaskBounds.groupByteCount
    /// What is named again of an `actionIdList` that cannot be read.
    static let reportedActionNames = 32
    /// Getui: reports reach back so far.
    package static let reportDays: Int64 = 90
    /// Getui: items of one `user/bind_dt` call.
    package static let deviceTokenItemCount = 1_000
    /// What a test device is called; Getui documents no bound.
    package static let remarkCharacterCount = 200
    /// Test devices on one page of their list.
    package static let testDevicePageCount = 1_000
    /// Getui: a transmission's characters (Unicode scalars here).
    package static let transmissionCharacterCount = 3_072
    /// A message's payload, whatever it came from (design: kept verbatim, up to 16 KiB).
    package static let payloadByteCount = MessageBounds.payloadByteCount
    /// A key names something; it is no payload.
    ///
    /// Part of every queued row.
    package static let collapseKeyByteCount = MessageBounds.collapseKeyByteCount
    /// Apple's bound for apns-collapse-id.
    package static let apnsCollapseIDByteCount = Bounds.collapseIDByteCount
    /// Apple's bounds for a notification's body.
    package static let apnsBodyByteCount = Bounds.bodyByteCount
    package static let apnsVoIPBodyByteCount = Bounds.voipBodyByteCount
    /// Title and body of an alert together: as much as APNs would take, also where APNs is told something else.
    package static let alertByteCount = MessageBounds.alertByteCount
    /// A frame's `apns` object: one that renders to a full body, written with escapes and white space.
    package static let nativeAPNsByteCount = 32 << 10
    /// A badge is a non-negative 32-bit number: ten digits at most, and the size check counts all ten.
    package static let badgeDigitCount = 10
    /// Fields that an answer names, of each sort, and what it shows of each.
    static let notedKeyCount = 64
    static let notedKeyByteCount = 64
    /// Getui: attachments of one notification.
    package static let multimediaCount = 3
    /// Getui: three days.
    package static let timeToLive: Int64 = 259_200_000
    /// Getui's current default: two hours.
    package static let defaultTimeToLive: Int64 = 7_200_000
    /// Getui documents none; ten minutes forgives a badly kept clock and bounds a replay of the sign.
    package static let timestampTolerance: Int64 = 600_000
    /// Offsets of the machine's clock up to this, in milliseconds, are noise: schedules ignore them.
    static let clockNoise: Int64 = 10_000
    /// Getui: a token is valid for 24 hours.
    package static let tokenLifetime: Int64 = 86_400_000
    /// Void tokens of one app that a gateway remembers until they expire: a client voids one when it stops.
    package static let revokedTokensOfApp = 10_000
    /// Those of all apps: what a joining gateway learns of them with one answer.
    package static let revokedTokens = 200_000
    /// Path segments of the longest route, and then some; a longer path is no route.
    package static let pathSegmentCount = 12

    /// An app's id (docs/use/Operations.md, "Configuration").
    package static let appIDByteCount = 64
    /// An app's settings with three secrets of each kind and every text take some 4 KB.
    package static let appBodyByteCount = 16 << 10
    /// Devices a second that a drain may tell to go: all of the largest gateway in a second.
    static let drainPace = 1_000_000
    /// A host's name of 253 bytes, brackets, and a port; what a client takes.
    static let alternateByteCount = Wire.Limits.alternateByteCount
    /// A backup's name is one folder's.
    static let backupNameByteCount = 64
    /// 500 results with long reasons take about 200 KB.
    package static let adminBodyByteCount = 1 << 20
    package static let waitSeconds: ClosedRange<Int64> = 0...30
    /// The vendor's reason is kept in the trace row.
    package static let vendorReasonByteCount = 64
    /// The hook's answer: 500 outcomes of 400 bytes.
    package static let hookAnswerByteCount = 1 << 20
}
