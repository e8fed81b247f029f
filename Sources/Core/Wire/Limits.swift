/// The bounds of the device protocol, in bytes unless the name says otherwise.
///
/// They limit the memory that a peer can occupy. A body that exceeds a bound is rejected as a whole (`WireError.tooLong`,
/// `.tooMany`).
///
/// The parts of a publish (payload, collapse key, request id, texts, APNs object) are bounded here only by the frame. The
/// publish's validation rejects an oversized part with an error, and the sender's connection stays open.
public enum Limits {
    /// The largest frame body: four times the largest payload (16 KiB), which leaves room for an alert and an APNs object.
    public static let frameBodyByteCount = 64 << 10
    /// The largest body of a device's frame or of a sender's Hello, the memory held for an unauthenticated client.
    public static let clientBodyByteCount: Int = {
        let positions = positionCount * (rangeCount * 24 + 32)
        let tokens = tokenCount * (topicByteCount + tokenByteCount + activityByteCount + 32)
        let texts =
            appIDByteCount + clientByteCount + alternateByteCount + proofByteCount + nonceByteCount
            + webTokenByteCount + attributesByteCount
        let hello = positions + tokens + texts + openedCount * 24
        let ack = positions + rejectedCount * (reasonByteCount + 32)
        return 1_024 + max(hello, ack, upstreamPayloadByteCount)
    }()
    /// The payload of an upstream message from a device.
    public static let upstreamPayloadByteCount = 16 << 10
    /// The maximum of the header's 24-bit length; no configured limit can exceed it.
    public static let largestFrameBodyByteCount = 1 << 24 - 1

    /// The ranges above a position; the window is 32, so at most 32 ranges exist.
    public static let rangeCount = 32
    /// The positions in a Hello or Ack; two streams exist, and the remaining six are reserved for later ones.
    public static let positionCount = 8
    /// The rejections in an Ack: a whole window.
    public static let rejectedCount = 32
    /// The opened msgIds in a Hello; further ones are sent as Feedback.
    public static let openedCount = 32
    /// The maximum number of vendor tokens of a device, a Hello or a DeviceUpdate.
    ///
    /// Eight may be of Live Activities, six of three other kinds in two environments, and two of other channels or topics.
    public static let tokenCount = 16
    /// The maximum number of Live Activity tokens: a system allows about five activities, and a few may have ended recently.
    public static let activityTokenCount = 8
    /// The custom actions in Feedback, numbered as in Getui.
    public static let actions: ClosedRange<UInt32> = 90_001...90_999
    /// The number of reasons in Welcome's `dropped`; nine final states exist.
    public static let droppedCount = 16

    /// An alias, an alias type or a tag has at most 64 characters of up to four bytes.
    public static let nameByteCount = 256
    /// The maximum number of tags in a DeviceNames or its result: the maximum of `limits.tagsPerDevice`.
    ///
    /// All tags of a device have at most 2,000 characters, so a valid frame is smaller than the largest Hello.
    public static let deviceTagCount = 200

    /// An app id is a short name in the configuration.
    public static let appIDByteCount = 64
    /// APNs topics are ASCII bundle ids with a suffix; a device's row stores the length in one byte.
    public static let topicByteCount = 255
    /// The longest tokens are Web Push subscriptions: an endpoint of up to 900 bytes and two keys of 110 characters.
    public static let tokenByteCount = 1_024
    /// ActivityKit's ids are UUIDs of 36 characters; an app may use other names.
    public static let activityByteCount = 64
    /// 128 characters of up to four bytes.
    public static let reasonByteCount = 512
    /// 64 characters of up to four bytes.
    public static let clientByteCount = 256
    /// host:port, where a host name has at most 253 characters.
    public static let alternateByteCount = 264
    /// A proof is an HMAC-SHA256 of 32 bytes; another length up to this bound is a wrong proof, not a malformed body.
    public static let proofByteCount = 64
    /// Sixteen random bytes that distinguish two Hellos with the same timestamp.
    public static let nonceByteCount = 16
    /// A JSON Web Token with RS256 and a key of 4,096 bits has about 1,000 bytes.
    public static let webTokenByteCount = 2_048
    /// A text attribute of a device, such as the model; longer ones are dropped.
    public static let attributeByteCount = 64
    /// The longest language tag without private extensions (RFC 5646, section 4.4.1).
    public static let localeByteCount = 35
    /// The length of the longest valid message: five texts, the locale, and two enums, each with its tag.
    public static let attributesByteCount = 5 * (attributeByteCount + 2) + localeByteCount + 2 + 4
    /// A device secret has 32 bytes.
    public static let secretByteCount = 64
}
