internal import Wire

/// What one connection may make us do in a while: every frame costs, and what we send it earns.
///
/// A device owes an ack for each message and may tell of it twice more, so each message earns three frames: a client that
/// answers what it gets never runs out, however fast that comes. Everything else comes out of an allowance that is there
/// anew every ten seconds.
struct FrameBudget: BitwiseCopyable {
    /// In seconds.
    private static let period: UInt16 = 10
    /// What a connection has at the beginning of each period, at least.
    private static let allowance: Int32 = 10_000
    /// What unused earnings add up to.
    private static let most: Int32 = 1_000_000
    private static let earnedByMessage: Int32 = 3

    private var left = FrameBudget.allowance
    private var since: UInt16 = 0

    /// What a frame costs by its type, before its size.
    ///
    /// Answers, reads and writes of the store that it causes; a client that pings every second and tells each change of
    /// state makes some twenty of the dearer ones in a period.
    static func cost(of type: FrameType) -> Int32 {
        switch type {
        case .ack, .feedback: 1
        case .ping, .pong, .deviceUpdate, .upstream: 10
        default: 1
        }
    }

    /// An update with tokens is a write of the device's record, however often it says the same.
    static let tokensCost: Int32 = 90
    /// A WebSocket's frame that carries no part of ours: a ping of its own, for one, is answered like ours.
    static let emptyFrameCost: Int32 = 10
    /// An action is a row that reports keep for long.
    static let actionCost: Int32 = 9
    /// The bytes that cost as much as a frame.
    private static let byteCountOfOne = 256

    /// Takes a frame out of the budget; false when it is used up.
    mutating func take(_ cost: Int32, byteCount: Int = 0, second: UInt64) -> Bool {
        let now = UInt16(truncatingIfNeeded: second)
        if now &- since >= Self.period {
            since = now
            left = max(left, Self.allowance)
        }
        left -= cost + Int32(clamping: byteCount / Self.byteCountOfOne)
        return left >= 0
    }

    /// A message goes out.
    mutating func earn() { left = min(left + Self.earnedByMessage, Self.most) }
}
