package import Wire

/// A value for each channel, without an allocation; there are sixteen places because a stored channel has four bits.
package struct PerChannel<Value> {
    private var values: InlineArray<16, Value>

    package init(_ make: (VendorChannel) -> Value) {
        values = InlineArray { make(VendorChannel(rawValue: UInt8($0)) ?? .apns) }
    }

    package subscript(channel: VendorChannel) -> Value {
        get { values[Int(channel.rawValue)] }
        set { values[Int(channel.rawValue)] = newValue }
    }

    package func forEach(_ body: (Value) -> Void) {
        for channel in VendorChannel.allCases { body(self[channel]) }
    }

    package func sum<Number: AdditiveArithmetic>(_ number: (Value) -> Number) -> Number {
        var sum = Number.zero
        forEach { sum += number($0) }
        return sum
    }
}

extension VendorChannel {
    /// Returns a channel as four bits of a stored or sent byte; 0: no channel.
    package static func nibble(of channel: VendorChannel?) -> UInt8 { channel.map { $0.rawValue + 1 } ?? 0 }

    /// - Returns: `nil` for 0, and for a channel of a later version.
    package static func channel(ofNibble nibble: UInt8) -> VendorChannel? {
        nibble == 0 ? nil : VendorChannel(rawValue: nibble - 1)
    }
}

extension PerChannel: Sendable where Value: Sendable {}

/// A set of channels as bits; it can contain channels that only a later version knows.
package struct ChannelSet: OptionSet, Sendable, Codable {
    package let rawValue: UInt16
    package init(rawValue: UInt16) { self.rawValue = rawValue }
    package init(_ channel: VendorChannel) { self.init(rawValue: 1 << UInt16(channel.rawValue)) }

    /// The lowest known channel of the set: an accepted message's vendor, else its follow-up.
    var first: VendorChannel? { Self.known.first { contains(ChannelSet($0)) } }

    private static let known = VendorChannel.allCases

    /// The follow-up channels; a constant, because every row is checked for them.
    static let followUps = ChannelSet(rawValue: 0x3C00)

    /// All channels, including those of later versions.
    package static let all = ChannelSet(rawValue: .max)
}

/// The job figures of one channel in one shard.
///
/// Counters count since the process started; gauges show the current state.
package struct VendorStatistics: Sendable {
    // Counters.
    package var jobsCreated: UInt64 = 0
    package var leasesGiven: UInt64 = 0
    package var leasesLapsed: UInt64 = 0
    package var resultsAccepted: UInt64 = 0
    package var resultsRetry: UInt64 = 0
    package var resultsUnsent: UInt64 = 0
    package var resultsRejected: UInt64 = 0
    package var resultsBadToken: UInt64 = 0
    package var resultsStale: UInt64 = 0
    package var jobsExhausted: UInt64 = 0
    /// Alerts that the vendor showed although the device had already acked the message.
    package var alertedTwice: UInt64 = 0

    // Gauges.
    package var dueJobs = 0
    package var heldJobs = 0
    package var leasedJobs = 0

    package init() {}

    mutating func addCounters(of earlier: VendorStatistics) {
        for counter in Self.counters { self[keyPath: counter] &+= earlier[keyPath: counter] }
    }

    static var counters: [WritableKeyPath<VendorStatistics, UInt64>] {
        [
            \.jobsCreated, \.leasesGiven, \.leasesLapsed, \.resultsAccepted, \.resultsRetry, \.resultsUnsent,
            \.resultsRejected, \.resultsBadToken, \.resultsStale, \.jobsExhausted, \.alertedTwice,
        ]
    }
}
