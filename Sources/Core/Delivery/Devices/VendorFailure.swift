package import Wire

/// The reason why the vendor did not accept the last message offered for a device.
///
/// The device's row keeps the failure until the vendor accepts a message, so that the device's status shows why nothing arrives.
package struct VendorFailure: Equatable, Sendable, Codable {
    package var message: MessageID
    package var at: GatewayTime
    package var outcome: JobResult.Outcome
    /// The number of leases of the message's job, without those returned as `unsent`.
    package var attempts: UInt16
    /// The vendor's reason, at most 64 bytes; may be empty.
    package var reason: String

    package init(message: MessageID, at: GatewayTime, outcome: JobResult.Outcome, attempts: UInt16, reason: String) {
        (self.message, self.at, self.outcome) = (message, at, outcome)
        (self.attempts, self.reason) = (attempts, reason)
    }

    /// Returns whether at most the time and the number of attempts differ.
    func isLike(_ other: VendorFailure) -> Bool {
        message == other.message && outcome == other.outcome && reason == other.reason
    }
}

// MARK: The stored form

extension VendorFailure {
    /// The first byte of the section; it differs from `AttributesMark.mark` and from the versions of `DeviceNames`.
    static let mark: UInt8 = 0x80
    static let largestByteCount = fixedByteCount + 1 + JobResult.reasonByteCount
    private static let fixedByteCount = 1 + 16 + 8 + 1 + 2

    var byteCount: Int { Self.fixedByteCount + RowWriter.byteCount(text: reason) }

    func write(_ writer: inout RowWriter) {
        writer.put(Self.mark)
        writer.put(message.high)
        writer.put(message.low)
        writer.put(at)
        writer.put(outcome.rawValue)
        writer.put(attempts)
        writer.put(text: reason)
    }

    /// Reads the section after its mark; `nil` if the row is truncated.
    ///
    /// An outcome of a later version is read as `rejected`.
    init?(_ reader: inout RowReader) {
        guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
            let at = reader.next(Int64.self), let outcome = reader.next(UInt8.self),
            let attempts = reader.next(UInt16.self), let reason = reader.nextText()
        else { return nil }
        self.init(
            message: MessageID(high: high, low: low), at: at,
            outcome: JobResult.Outcome(rawValue: outcome) ?? .rejected,
            attempts: attempts, reason: reason)
    }
}
