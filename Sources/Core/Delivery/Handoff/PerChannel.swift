package import Wire

/// A value for each channel; not an array, so access costs no more than a single value.
package struct PerChannel<Value> {
    private var apns: Value

    package init(_ make: (VendorChannel) -> Value) { apns = make(.apns) }

    package subscript(channel: VendorChannel) -> Value {
        get {
            switch channel {
            case .apns: apns
            }
        }
        set {
            switch channel {
            case .apns: apns = newValue
            }
        }
    }

    package func forEach(_ body: (Value) -> Void) { body(apns) }

    package mutating func change(_ body: (inout Value) -> Void) { body(&apns) }

    package func sum<Number: AdditiveArithmetic>(_ number: (Value) -> Number) -> Number {
        var sum = Number.zero
        forEach { sum += number($0) }
        return sum
    }
}

extension VendorChannel {
    /// The channel's index among all known channels; stored numbers may have gaps.
    var place: Int {
        switch self {
        case .apns: 0
        }
    }
}

extension PerChannel: Sendable where Value: Sendable {}

/// A set of channels as bits; it can contain channels that only a later version knows.
package struct ChannelSet: OptionSet, Sendable, Codable {
    package let rawValue: UInt16
    package init(rawValue: UInt16) { self.rawValue = rawValue }
    package init(_ channel: VendorChannel) { self.init(rawValue: 1 << UInt16(channel.rawValue)) }

    /// The lowest known channel of the set.
    ///
    /// A message has content for at most one channel today. The order of several channels will be decided with the second
    /// channel.
    var first: VendorChannel? { Self.known.first { contains(ChannelSet($0)) } }

    private static let known = VendorChannel.allCases

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
