public struct BodyRange: Equatable, Sendable {
    public let offset: Int32
    public let byteCount: Int32

    public static let empty = BodyRange(0..<0)

    // Safe: a body has less than 2²⁴ bytes, as `PublishView.init(decoding:)` checks.
    init(_ range: Range<Int>) { (offset, byteCount) = (Int32(range.lowerBound), Int32(range.count)) }

    public var isEmpty: Bool { byteCount == 0 }

    /// Returns the bytes in `body`, which must be the body that this range was read from; only the bounds are checked.
    @unsafe public func bytes(of body: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        let (start, count) = (Int(offset), Int(byteCount))
        guard count > 0 else { return unsafe UnsafeRawBufferPointer(start: nil, count: 0) }
        precondition(start >= 0 && count <= body.count - start, "the range is of another body")
        return unsafe UnsafeRawBufferPointer(rebasing: body[start..<(start + count)])
    }
}

/// A Publish decoded for the hot path: numbers, and ranges into the body instead of copies, without allocation.
///
/// Texts are checked to be valid UTF-8. The publish's validation checks lengths, strategies and TTL, and answers a fault with a
/// PublishResult.
public struct PublishView: Equatable, Sendable {
    public private(set) var request: UInt64 = 0
    public private(set) var cid = DeviceID.none
    public private(set) var payload = BodyRange.empty
    public private(set) var timeToLive: Int64 = 0
    /// Whether a TTL was given: by the TTL field, or by `has_ttl` of an older sender, which does not encode a TTL of 0.
    public private(set) var hasTimeToLive = false
    public private(set) var strategy: UInt32 = 0
    public private(set) var collapseKey = BodyRange.empty
    public private(set) var requestID = BodyRange.empty
    public private(set) var hasAlert = false
    public private(set) var alertTitle = BodyRange.empty
    public private(set) var alertBody = BodyRange.empty
    public private(set) var apns = BodyRange.empty

    /// Decodes the body of a Publish frame.
    ///
    /// - Parameter body: at most `Limits.largestFrameBodyByteCount` bytes.
    /// - Throws: the first fault. The body must not be used then.
    public init(decoding body: RawSpan) throws(WireError) {
        precondition(body.byteCount <= Limits.largestFrameBodyByteCount, "no frame has such a body")
        var cursor = Cursor(body.byteOffsets)
        while let field = try cursor.next(Publish.Field.self, in: body) {
            switch field {
            case .request: request = try cursor.varint(in: body)
            case .cid: cid = try cursor.identifier(DeviceID.self, field, in: body)
            case .payload: payload = BodyRange(try cursor.lengthDelimited(in: body))
            case .ttlMs: (timeToLive, hasTimeToLive) = (try cursor.sint64(in: body), true)
            case .hasTtl: if try cursor.bool(in: body) { hasTimeToLive = true }
            case .strategy: strategy = try cursor.uint32(in: body)
            case .collapseKey: collapseKey = BodyRange(try cursor.text(field, in: body))
            case .requestId: requestID = BodyRange(try cursor.text(field, in: body))
            case .alert: try readAlert(body, at: cursor.lengthDelimited(in: body))
            case .apns: apns = BodyRange(try cursor.lengthDelimited(in: body))
            }
        }
    }

    private mutating func readAlert(_ body: RawSpan, at range: Range<Int>) throws(WireError) {
        hasAlert = true
        var cursor = Cursor(range)
        while let field = try cursor.next(Alert.Field.self, in: body) {
            switch field {
            case .title: alertTitle = BodyRange(try cursor.text(field, in: body))
            case .body: alertBody = BodyRange(try cursor.text(field, in: body))
            }
        }
    }
}
