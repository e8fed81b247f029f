internal import Wire

/// The rate limit of one connection: each received frame costs credit, and each sent message earns some.
///
/// A device must ack each message and may report it twice more, so a message earns three frames. A client that only answers
/// messages never exceeds the limit, whatever the message rate. All other frames use an allowance that is renewed every ten
/// seconds.
struct FrameBudget: BitwiseCopyable {
    /// In seconds.
    private static let period: UInt16 = 10
    /// The least credit at the beginning of each period.
    private static let allowance: Int32 = 10_000
    /// The most credit that can accumulate.
    private static let most: Int32 = 1_000_000
    private static let earnedByMessage: Int32 = 3

    private var left = FrameBudget.allowance
    private var since: UInt16 = 0

    /// Returns the cost of a frame type, without its size.
    ///
    /// The cost reflects the answers, reads and writes that a frame causes. A client that pings every second and reports each
    /// change of state sends about twenty expensive frames in a period.
    static func cost(of type: FrameType) -> Int32 {
        switch type {
        case .ack, .feedback: 1
        case .ping, .pong, .deviceUpdate, .upstream: 10
        case .deviceNames: 100
        default: 1
        }
    }

    /// The extra cost of an update with tokens, which always writes the device's record.
    static let tokensCost: Int32 = 90
    /// The cost of a WebSocket frame without payload; a WebSocket ping, for example, must be answered like a protocol ping.
    static let emptyFrameCost: Int32 = 10
    /// The extra cost of an action (`Feedback`), whose row is stored until the task's reports expire.
    static let actionCost: Int32 = 9
    /// The number of bytes that cost as much as a frame.
    private static let byteCountOfOne = 256

    /// Charges a frame; returns `false` if the budget is used up.
    mutating func take(_ cost: Int32, byteCount: Int = 0, second: UInt64) -> Bool {
        let now = UInt16(truncatingIfNeeded: second)
        if now &- since >= Self.period {
            since = now
            left = max(left, Self.allowance)
        }
        left -= cost + Int32(clamping: byteCount / Self.byteCountOfOne)
        return left >= 0
    }

    mutating func earn() { left = min(left + Self.earnedByMessage, Self.most) }
}
