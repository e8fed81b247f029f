package import Wire

/// A value for each channel, in its place.
///
/// Without an array, so that reading and counting cost what they cost for one value.
package struct PerChannel<Value> {
    private var apns: Value

    /// Makes the value of every channel.
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

    /// Visits the values in the order of their channels.
    package func forEach(_ body: (Value) -> Void) { body(apns) }

    /// Changes each value in its place, in the order of the channels.
    package mutating func change(_ body: (inout Value) -> Void) { body(&apns) }

    /// Adds up a number of all channels.
    package func sum<Number: AdditiveArithmetic>(_ number: (Value) -> Number) -> Number {
        var sum = Number.zero
        forEach { sum += number($0) }
        return sum
    }
}

extension VendorChannel {
    /// Its place among all channels: stored numbers may have gaps.
    var place: Int {
        switch self {
        case .apns: 0
        }
    }
}

extension PerChannel: Sendable where Value: Sendable {}

/// A set of channels: a bit for each, so that rows may name those that only a later version knows.
package struct ChannelSet: OptionSet, Sendable, Codable {
    package let rawValue: UInt16
    package init(rawValue: UInt16) { self.rawValue = rawValue }
    package init(_ channel: VendorChannel) { self.init(rawValue: 1 << UInt16(channel.rawValue)) }

    /// The channel of the lowest number among those that this version knows.
    ///
    /// A message has a content for one channel at most today; which of several is tried first is to be decided with the
    /// second channel.
    var first: VendorChannel? { Self.known.first { contains(ChannelSet($0)) } }

    private static let known = VendorChannel.allCases

    /// All channels, including those that later releases add.
    package static let all = ChannelSet(rawValue: .max)
}

/// The figures of one channel's jobs in one shard: counters count since the process started, gauges show the state of now.
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
    /// The vendor showed an alert of a message that the device had acked already.
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
