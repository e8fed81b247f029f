internal import Delivery
internal import Wire

/// A metric of `/metrics`: its name, kind, unit, help and samples.
///
/// Only `MetricCatalogue` declares metrics. A test compares them with docs/use/Operations.md.
package struct Metric: Sendable {
    package enum Kind: String, Sendable { case counter, gauge, histogram }

    /// The unit of a metric's internal values; the page uses seconds and bytes.
    package enum Unit: Sendable {
        case none, bytes, seconds, milliseconds, microseconds, nanoseconds

        /// The number of these units per unit on the page, for example 1,000 milliseconds per second.
        var divisor: Double {
            switch self {
            case .none, .bytes, .seconds: 1
            case .milliseconds: 1_000
            case .microseconds: 1_000_000
            case .nanoseconds: 1_000_000_000
            }
        }

        /// The unit in the metric's name.
        package var word: String? {
            switch self {
            case .none: nil
            case .bytes: "bytes"
            case .seconds, .milliseconds, .microseconds, .nanoseconds: "seconds"
            }
        }
    }

    /// The name on the page, including the unit, and `_total` for a counter.
    package let name: String
    package let kind: Kind
    package let unit: Unit
    /// The HELP line: one sentence without a line break.
    package let help: String
    package let samples: [MetricSample]

    init(_ name: String, _ kind: Kind, unit: Unit = .none, _ help: String, _ samples: MetricSample...) {
        self.init(name, kind, unit: unit, help, samples)
    }

    init(_ name: String, _ kind: Kind, unit: Unit = .none, _ help: String, _ samples: [MetricSample]) {
        (self.name, self.kind, self.unit, self.help, self.samples) = (name, kind, unit, help, samples)
    }
}

typealias MetricNumber = BinaryInteger & SendableMetatype

/// A sample of a metric: its labels, and how it is computed from the figures.
package struct MetricSample: Sendable {
    package typealias Labels = KeyValuePairs<MetricLabel, String>

    enum Source: Sendable {
        /// A number; for `nil` the sample is omitted.
        case number(@Sendable (MetricFigures) -> Double?)
        case histogram(@Sendable (MetricFigures) -> MetricHistogram?)
        /// One sample per other gateway, labelled with its address.
        case links(@Sendable (ClusterFigures.Link) -> Double)
        /// One sample per app, labelled with its id.
        case apps(@Sendable (AppStatistics) -> Double)
    }

    let labels: [(name: MetricLabel, value: String)]
    let source: Source

    private init(_ labels: Labels, _ source: Source) { self.init(labels.map { ($0.key, $0.value) }, source) }

    private init(_ labels: [(name: MetricLabel, value: String)], _ source: Source) {
        (self.labels, self.source) = (labels, source)
    }

    /// Makes a sample of a value of the process.
    static func process(
        _ labels: Labels = [:], _ value: @escaping @Sendable (MetricFigures) -> (some MetricNumber)?
    ) -> MetricSample {
        MetricSample(labels, .number { value($0).map { Double($0) } })
    }

    /// Makes a sample of the sum over all loops.
    static func sum(
        _ labels: Labels = [:], _ value: @escaping @Sendable (LoopFigures) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .number { $0.loops.reduce(0) { $0 + Double(value($1)) } })
    }

    /// Makes one sample per vendor channel, each the sum over all loops.
    static func vendors(
        _ labels: Labels = [:], _ value: @escaping @Sendable (VendorStatistics) -> some MetricNumber
    ) -> [MetricSample] {
        VendorChannel.allCases.map { channel in
            let all = [(MetricLabel.channel, "\(channel.name)")] + labels.map { ($0.key, $0.value) }
            return MetricSample(all, .number { $0.loops.reduce(0) { $0 + Double(value($1.shard[channel])) } })
        }
    }

    /// Makes a sample of the maximum over all loops.
    static func largest(_ value: @escaping @Sendable (LoopFigures) -> Int) -> MetricSample {
        MetricSample([:], .number { Double($0.loops.map(value).max() ?? 0) })
    }

    /// Makes a sample of a loop counter, summed over all loops.
    static func counter(_ counter: LoopCounter, _ labels: Labels = [:]) -> MetricSample {
        sum(labels) { $0.metrics[counter] }
    }

    /// Makes a sample of a loop timer, summed over all loops.
    static func timer(_ timer: LoopTimer) -> MetricSample {
        histogram { figures in
            figures.loops.reduce(into: MetricHistogram()) { $0.add($1.metrics[timer]) }
        }
    }

    static func histogram(_ value: @escaping @Sendable (MetricFigures) -> MetricHistogram?) -> MetricSample {
        MetricSample([:], .histogram(value))
    }

    /// Makes a sample of a cluster value, omitted without a cluster.
    static func cluster(
        _ labels: Labels = [:], _ value: @escaping @Sendable (ClusterFigures) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .number { $0.cluster.map { Double(value($0)) } })
    }

    /// Makes a sample per other gateway of the cluster.
    static func links(_ value: @escaping @Sendable (ClusterFigures.Link) -> some MetricNumber) -> MetricSample {
        MetricSample([:], .links { Double(value($0)) })
    }

    /// Makes a sample per app, each the sum over all loops.
    static func apps(
        _ labels: Labels = [:], _ value: @escaping @Sendable (AppStatistics) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .apps { Double(value($0)) })
    }
}

package enum MetricLabel: String, Sendable, CaseIterable {
    case app, channel, kind, listener, name, peer, role, type, reason, state, outcome, result, status, version
}
