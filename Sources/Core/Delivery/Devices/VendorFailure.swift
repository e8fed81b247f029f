package import Wire

/// Why the vendor did not take the last message that a sender offered it for a device.
///
/// It stands in the device's row until the vendor takes one, so that a device's state says why nothing arrives.
package struct VendorFailure: Equatable, Sendable, Codable {
    package var message: MessageID
    package var at: GatewayTime
    /// What the sender reported.
    package var outcome: JobResult.Outcome
    /// The leases of the message's job so far, but for those that were given back unsent.
    package var attempts: UInt16
    /// The vendor's own word, at most 64 bytes; may be empty.
    package var reason: String

    package init(message: MessageID, at: GatewayTime, outcome: JobResult.Outcome, attempts: UInt16, reason: String) {
        (self.message, self.at, self.outcome) = (message, at, outcome)
        (self.attempts, self.reason) = (attempts, reason)
    }

    /// True when only the time and the count of attempts may differ.
    func isLike(_ other: VendorFailure) -> Bool {
        message == other.message && outcome == other.outcome && reason == other.reason
    }
}

// MARK: The stored form

extension VendorFailure {
    /// Leads the section; where there is none, the version of the names stands there, or nothing.
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

    /// Reads the section behind its mark; `nil` when the row is cut short.
    ///
    /// A later version's outcome reads as `rejected`.
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
