import Delivery
import MessageStore
import Testing
import Wire

@testable import Gateway

@Suite("Metric catalogue")
struct MetricCatalogueTests {
    /// Figures without a metric, each with the reason.
    private static let withoutMetric: [String: String] = [
        "ShardStatistics.sessions": "longwire_sessions tells the loop's own table",
        "ShardStatistics.deliversSent": "longwire_delivers_sent_total counts the frames that went out",
        "StoreStatistics.refusalReason": "a text: /readyz and the log (redisEvent) have it",
        "StoreStatistics.lastSpillFailure": "a text: the log has it with spillFailed",
        "StoreStatistics.readTimes": "an array: as commitTimes",
        "StoreStatistics.commitTimes": "an array: MetricsTests.commitTimes looks at its histogram",
    ]

    // MARK: Names

    @Test("a name has its unit, a counter's name ends in _total, and help is one sentence on one line")
    func names() {
        for metric in MetricCatalogue.all {
            let words = metric.name.split(separator: "_")
            // All exporters use the second prefix for the figures of a process.
            #expect(
                (words.first == "longwire" || words.first == "process")
                    && metric.name.wholeMatch(of: /[a-z][a-z0-9_]*/) != nil, "\(metric.name)")
            #expect((metric.kind == .counter) == (words.last == "total"), "\(metric.name)")
            for unit in ["bytes", "seconds"] {
                #expect(words.contains { $0 == unit } == (metric.unit.word == unit), "\(metric.name)")
            }
            for wrong in ["ms", "us", "milliseconds", "microseconds", "minutes", "kilobytes", "megabytes"] {
                #expect(!words.contains { $0 == wrong }, "\(metric.name)")
            }
            #expect(metric.help.hasSuffix(".") && !metric.help.contains("\n") && !metric.help.contains("\\"))
            #expect(!metric.samples.isEmpty, "\(metric.name)")
        }
        // OpenMetrics names a counter without its suffix.
        let families = MetricCatalogue.all.map { metric in
            metric.kind == .counter ? String(metric.name.dropLast("_total".count)) : metric.name
        }
        #expect(Set(families).count == families.count)
    }

    @Test("samples of a metric have its kind, the same labels and different label values")
    func labels() {
        for metric in MetricCatalogue.all {
            var seen: Set<[String]> = []
            for sample in metric.samples {
                if case .histogram = sample.source {
                    #expect(metric.kind == .histogram, "\(metric.name)")
                } else {
                    #expect(metric.kind != .histogram, "\(metric.name)")
                }
                #expect(sample.labels.map(\.name) == metric.samples[0].labels.map(\.name), "\(metric.name)")
                #expect(seen.insert(sample.labels.map(\.value)).inserted, "\(metric.name)")
            }
        }
    }

    // MARK: Completeness

    /// Returns a page of one loop and one app with a hook, after `change`.
    private func page(_ change: (inout MetricFigures) -> Void = { _ in }) -> [Substring] {
        var figures = MetricFigures()
        figures.hook = HookState()
        figures.cluster = ClusterFigures()
        figures.appIDs = ["app"]
        figures.loops = [LoopFigures()]
        figures.loops[0].apps = [AppStatistics()]
        change(&figures)
        return String(decoding: MetricsPage.render(figures), as: UTF8.self).split(separator: "\n")
    }

    private func changedLines(_ page: [Substring], _ base: [Substring]) -> Int {
        zip(page, base).count { $0 != $1 } + abs(page.count - base.count)
    }

    /// Sets each number in turn; a number that does not change the page has no metric.
    private func check<Figures>(_ empty: Figures, _ put: (Figures, inout MetricFigures) -> Void) {
        let base = page()
        let fields = Field.all(of: empty)
        #expect(fields.count > 5)
        for field in fields {
            let isExcused = Self.withoutMetric[field.name] != nil
            guard field.isNumber else {
                #expect(isExcused, "\(field.name) is no number: it needs a metric and a test, or a reason")
                continue
            }
            for offset in stride(from: field.offset, to: field.offset + field.byteCount, by: 8) {
                var figures = empty
                withUnsafeMutableBytes(of: &figures) {
                    $0.storeBytes(of: 1_000_000, toByteOffset: offset, as: Int64.self)
                }
                let isShown = changedLines(page { put(figures, &$0) }, base) > 0
                #expect(isShown || isExcused, "\(field.name) has no metric")
                #expect(!isShown || !isExcused, "\(field.name) has a metric, and a reason to have none")
            }
        }
    }

    @Test("every figure of the shard has a metric or a reason to have none")
    func shard() { check(ShardStatistics()) { $1.loops[0].shard = $0 } }

    @Test("every figure of an app has a metric")
    func apps() { check(AppStatistics()) { $1.loops[0].apps = [$0] } }

    @Test("every figure of the store has a metric or a reason to have none")
    func store() { check(StoreStatistics()) { $1.store = $0 } }

    @Test("every counter and timer of a loop changes one sample or one histogram")
    func loops() {
        let base = page()
        for counter in LoopCounter.allCases {
            #expect(changedLines(page { $0.loops[0].metrics.count(counter) }, base) == 1, "\(counter)")
        }
        for timer in LoopTimer.allCases {
            // The sum, the count, and every bucket from the observed value on.
            let changed = changedLines(page { $0.loops[0].metrics.observe(timer, microseconds: 10_000_000) }, base)
            #expect(changed == 4, "\(timer)")
        }
    }

    @Test("every listed exception names an existing figure")
    func excuses() {
        let fields = Field.all(of: ShardStatistics()) + Field.all(of: StoreStatistics())
        for name in Self.withoutMetric.keys { #expect(fields.contains { $0.name == name }, "\(name)") }
    }
}

/// A stored property of a statistics struct, and its memory offset.
private struct Field {
    var name: String
    var offset: Int
    var byteCount: Int
    /// Whether the property consists of one or more words that are numbers.
    var isNumber: Bool

    /// Returns the fields in order; a nested struct is replaced by its fields.
    static func all<Figures>(of figures: Figures) -> [Field] {
        var fields: [Field] = []
        var offset = 0
        add(figures, "\(Figures.self)", &offset, to: &fields)
        #expect(offset == MemoryLayout<Figures>.size, "\(Figures.self) is laid out otherwise")
        return fields
    }

    /// Each type in use is aligned to words, so there are no gaps.
    private static func add(_ figures: Any, _ prefix: String, _ offset: inout Int, to fields: inout [Field]) {
        for child in Mirror(reflecting: figures).children {
            let name = "\(prefix).\(child.label ?? "")"
            let (byteCount, isNumber): (Int, Bool)
            switch child.value {
            case is Int, is Int64, is UInt64: (byteCount, isNumber) = (8, true)
            case is InlineArray<9, UInt64>: (byteCount, isNumber) = (72, true)
            case is [Int]: (byteCount, isNumber) = (MemoryLayout<[Int]>.size, false)
            case is String?: (byteCount, isNumber) = (MemoryLayout<String?>.size, false)
            case is StoreStatistics.Retention, is VendorStatistics:
                add(child.value, name, &offset, to: &fields)
                continue
            case let vendors as PerChannel<VendorStatistics>:
                let end = offset + MemoryLayout.size(ofValue: vendors)
                for channel in VendorChannel.allCases {
                    add(vendors[channel], "\(name).\(channel.name)", &offset, to: &fields)
                }
                offset = end
                continue
            case let counts as PerChannel<Int>:
                for channel in VendorChannel.allCases {
                    let place = offset + Int(channel.rawValue) * MemoryLayout<Int>.size
                    fields.append(Field(name: "\(name).\(channel.name)", offset: place, byteCount: 8, isNumber: true))
                }
                offset += MemoryLayout.size(ofValue: counts)
                continue
            default:
                Issue.record("\(name) has a type that this test does not know")
                return
            }
            fields.append(Field(name: name, offset: offset, byteCount: byteCount, isNumber: isNumber))
            offset += byteCount
        }
    }
}
