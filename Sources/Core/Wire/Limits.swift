/// Bounds of the device protocol, in bytes unless the name says otherwise.
///
/// They keep what a peer can make us hold small; a body beyond one of them is refused as a whole (`WireError.tooLong`,
/// `.tooMany`).
///
/// A publish's own parts (payload, collapse key, request id, texts, APNs object) have no bound here besides the
/// frame's: the parser that validates the publish answers it with an error of its own, and the sender's connection
/// stays.
public enum Limits {
    /// A frame's body: four times the largest payload (16 KiB), so that an alert and an APNs object fit beside it.
    public static let frameBodyByteCount = 64 << 10
    /// The largest body of a frame that a device sends, or that a sender's Hello has: the parts' bounds below, added up.
    ///
    /// A client that has proved nothing yet, or has but a device's secret, makes us hold no more than this.
    public static let clientBodyByteCount: Int = {
        let positions = positionCount * (rangeCount * 24 + 32)
        let tokens = tokenCount * (topicByteCount + tokenByteCount + activityByteCount + 32)
        let texts = appIDByteCount + clientByteCount + alternateByteCount + proofByteCount + nonceByteCount
        let hello = positions + tokens + texts + openedCount * 24
        let ack = positions + rejectedCount * (reasonByteCount + 32)
        return 1_024 + max(hello, ack, upstreamPayloadByteCount)
    }()
    /// The payload of a message from a device.
    public static let upstreamPayloadByteCount = 16 << 10
    /// What the header's three length bytes can say; no configuration can go beyond it.
    public static let largestFrameBodyByteCount = 1 << 24 - 1

    /// Ranges beyond a position: the window is 32, so there cannot be more gaps than that.
    public static let rangeCount = 32
    /// Positions in one Hello or Ack: two streams exist, the rest is room for later ones.
    public static let positionCount = 8
    /// Rejections in one Ack: a whole window.
    public static let rejectedCount = 32
    /// Opened msgIds in one Hello; the rest follows as Feedback.
    public static let openedCount = 32
    /// Vendor tokens in one Hello or DeviceUpdate, and of one device: those of activities, three other kinds in two
    /// environments, and two of other channels or topics.
    public static let tokenCount = 16
    /// Tokens of Live Activities among them: a system lets an app have about five activities at a time, and some more
    /// may have ended lately.
    public static let activityTokenCount = 8
    /// Custom actions in Feedback: Getui's numbers for them.
    public static let actions: ClosedRange<UInt32> = 90_001...90_999
    /// Reasons in Welcome's `dropped`: there are nine final states.
    public static let droppedCount = 16

    /// An app id is a short name in the configuration.
    public static let appIDByteCount = 64
    /// APNs topics are bundle ids with a suffix, of ASCII; a device's row has one byte for the length.
    public static let topicByteCount = 255
    /// Vendor tokens are hex; Live Activity tokens are the longest seen, near 200 digits.
    public static let tokenByteCount = 512
    /// ActivityKit's ids are UUIDs of 36 characters; an app may have names of its own.
    public static let activityByteCount = 64
    /// 128 characters of up to four bytes.
    public static let reasonByteCount = 512
    /// 64 characters of up to four bytes.
    public static let clientByteCount = 256
    /// host:port, where a host name has at most 253 characters.
    public static let alternateByteCount = 264
    /// A proof is an HMAC-SHA256 of 32 bytes; a wrong length below this is a wrong proof, not a malformed body.
    public static let proofByteCount = 64
    /// Keeps two Hellos of one moment apart; sixteen random bytes never meet twice.
    public static let nonceByteCount = 16
    /// A device secret is 32 bytes.
    public static let secretByteCount = 64
}
