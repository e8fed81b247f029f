internal import Delivery
internal import Wire

/// One metric of `/metrics`: its name, kind, unit and help, and where its samples come from.
///
/// `MetricCatalogue` declares each one, and no other code knows a metric. A test holds docs/use/Operations.md to it.
package struct Metric: Sendable {
    package enum Kind: String, Sendable { case counter, gauge, histogram }

    /// What the figures are in; the page has seconds and bytes.
    package enum Unit: Sendable {
        case none, bytes, seconds, milliseconds, microseconds, nanoseconds

        /// How many of these make one of the page's unit.
        var divisor: Double {
            switch self {
            case .none, .bytes, .seconds: 1
            case .milliseconds: 1_000
            case .microseconds: 1_000_000
            case .nanoseconds: 1_000_000_000
            }
        }

        /// The word that the name has.
        package var word: String? {
            switch self {
            case .none: nil
            case .bytes: "bytes"
            case .seconds, .milliseconds, .microseconds, .nanoseconds: "seconds"
            }
        }
    }

    /// The name on the page: with the page's unit, and for a counter with `_total` at its end.
    package let name: String
    package let kind: Kind
    package let unit: Unit
    /// The HELP line: one sentence, no line end.
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

/// Where a sample comes from, and how the loops' figures become one.
package struct MetricSample: Sendable {
    package typealias Labels = KeyValuePairs<MetricLabel, String>

    enum Source: Sendable {
        /// `nil`: there is no such sample now.
        case number(@Sendable (MetricFigures) -> Double?)
        /// `nil`: there is no such sample now.
        case histogram(@Sendable (MetricFigures) -> MetricHistogram?)
        /// One sample for each other gateway, labelled with its address.
        case links(@Sendable (ClusterFigures.Link) -> Double)
        /// One sample an app, labelled with its id.
        case apps(@Sendable (AppStatistics) -> Double)
    }

    let labels: [(name: MetricLabel, value: String)]
    let source: Source

    private init(_ labels: Labels, _ source: Source) { self.init(labels.map { ($0.key, $0.value) }, source) }

    private init(_ labels: [(name: MetricLabel, value: String)], _ source: Source) {
        (self.labels, self.source) = (labels, source)
    }

    /// A figure of the process.
    static func process(
        _ labels: Labels = [:], _ value: @escaping @Sendable (MetricFigures) -> (some MetricNumber)?
    ) -> MetricSample {
        MetricSample(labels, .number { value($0).map { Double($0) } })
    }

    /// The loops' figures, added up.
    static func sum(
        _ labels: Labels = [:], _ value: @escaping @Sendable (LoopFigures) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .number { $0.loops.reduce(0) { $0 + Double(value($1)) } })
    }

    /// One sample for each channel, with its label in front of the others: the loops' figures, added up.
    static func vendors(
        _ labels: Labels = [:], _ value: @escaping @Sendable (VendorStatistics) -> some MetricNumber
    ) -> [MetricSample] {
        VendorChannel.allCases.map { channel in
            let all = [(MetricLabel.channel, "\(channel.name)")] + labels.map { ($0.key, $0.value) }
            return MetricSample(all, .number { $0.loops.reduce(0) { $0 + Double(value($1.shard[channel])) } })
        }
    }

    /// The largest of the loops' figures.
    static func largest(_ value: @escaping @Sendable (LoopFigures) -> Int) -> MetricSample {
        MetricSample([:], .number { Double($0.loops.map(value).max() ?? 0) })
    }

    /// What the loops counted themselves, added up.
    static func counter(_ counter: LoopCounter, _ labels: Labels = [:]) -> MetricSample {
        sum(labels) { $0.metrics[counter] }
    }

    /// What the loops timed, added up.
    static func timer(_ timer: LoopTimer) -> MetricSample {
        histogram { figures in
            figures.loops.reduce(into: MetricHistogram()) { $0.add($1.metrics[timer]) }
        }
    }

    static func histogram(_ value: @escaping @Sendable (MetricFigures) -> MetricHistogram?) -> MetricSample {
        MetricSample([:], .histogram(value))
    }

    /// A figure of the gateway's cluster; none where there is no cluster.
    static func cluster(
        _ labels: Labels = [:], _ value: @escaping @Sendable (ClusterFigures) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .number { $0.cluster.map { Double(value($0)) } })
    }

    /// A sample for each of the other gateways of the cluster.
    static func links(_ value: @escaping @Sendable (ClusterFigures.Link) -> some MetricNumber) -> MetricSample {
        MetricSample([:], .links { Double(value($0)) })
    }

    /// A sample for each of the page's apps: its figures of all loops, added up.
    static func apps(
        _ labels: Labels = [:], _ value: @escaping @Sendable (AppStatistics) -> some MetricNumber
    ) -> MetricSample {
        MetricSample(labels, .apps { Double(value($0)) })
    }
}

/// The names of labels.
package enum MetricLabel: String, Sendable, CaseIterable {
    case app, channel, kind, listener, name, peer, role, type, reason, state, outcome, result, status, version
}
