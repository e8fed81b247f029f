import Testing
import TextForms
import Wire

@testable import LoadGenerator

@Suite("Command line")
struct OptionsTests {
    @Test("a full command line is parsed, with both forms of values and grouped digits")
    func everything() throws {
        let options = try BenchOptions(parsing: [
            "live", "--devices=10,000", "--duration", "30", "--payload", "512", "--rate", "20_000", "--pid", "42",
            "--require", "p99<10ms", "--require", "loss=0", "--json=-",
        ])
        #expect(options.mode == .live)
        #expect(options.devices == 10_000)
        #expect(options.duration == 30)
        #expect(options.payloadByteCount == 512)
        #expect(options.rate == 20_000)
        #expect(options.processID == 42)
        #expect(options.isJSONPrinted)
        #expect(options.requirements.map(\.metric) == ["deliver.p99", "loss"])
    }

    @Test("defaults depend on the mode")
    func defaults() throws {
        #expect(try BenchOptions(parsing: ["idle"]).connections == 1_000)
        #expect(try BenchOptions(parsing: ["http"]).connections == 32)
        #expect(try BenchOptions(parsing: ["live"]).drain == 10)
        #expect(try BenchOptions(parsing: ["offline"]).drain == 60)
        #expect(try BenchOptions(parsing: ["storm"]).handshakes == 1_000)
        #expect(try BenchOptions(parsing: ["storm", "--messages", "0"]).messages == 0)
        #expect(try BenchOptions(parsing: ["live", "--pid", "7"]).processID == 7)
    }

    static let mistakes: [(arguments: [String], names: String)] = [
        ([], "which mode"), (["lively"], "lively"), (["live", "idle"], "idle"), (["live", "--nope"], "--nope"),
        (["live", "--websocet"], "did you mean --websocket?"), (["lvie"], "did you mean live?"),
        (["live", "--devices"], "--devices needs a value"), (["live", "--devices", "0"], "from 1 to"),
        (["live", "--devices", "many"], "many"), (["live", "--payload", "7"], "from 8 to"),
        (["http", "--connected=1"], "--connected"), (["live", "--json"], "--json needs a value"),
        (["live", "--devices", "1", "--devices", "2"], "twice"),
        (["idle", "--rate", "5"], "--rate"), (["--rate", "5", "idle"], "--rate"),
        (["live", "--rate", "5", "--in-flight", "5"], "exclude"), (["live", "--duration", "-1"], "from 0"),
        (["live", "--duration", "nan"], "nan"), (["live", "--require", "p99"], "p99<10ms"),
        (["live", "--require", "speed>5"], "speed"), (["live", "--require", "p99<10"], "time"),
        (["live", "--require", "rate>5ms"], "count"), (["live", "--require", "p99<fast"], "fast"),
        (["idle", "--require", "p99<1ms"], "p99"), (["live", "--require", "p99<1hour"], "units"),
        (["live", "--require", "loss<1/s"], "units"), (["live", "--messages", "3"], "--messages"),
        (["broadcast", "--devices", "5", "--registered", "4"], "--registered"),
        (["offline", "--messages", "0"], "only a storm"), (["live", "--threads", "0"], "from 1 to"),
    ]

    @Test("an error is reported in a sentence that names it", arguments: mistakes)
    func refused(arguments: [String], names: String) {
        let error = #expect(throws: CommandFailure.self) { try BenchOptions(parsing: arguments) }
        #expect(error?.description.contains(names) == true, "\(error?.description ?? "")")
    }

    @Test("help lists every mode, option and metric")
    func help() {
        let text = Help.text
        for mode in Mode.allCases {
            #expect(text.contains("  \(mode.rawValue) "))
            for name in mode.metricNames { #expect(text.contains(name)) }
        }
        for option in BenchOptions.all where option.name != "pid" { #expect(text.contains("\n  --\(option.name)")) }
        #expect(text.split(separator: "\n").allSatisfy { $0.count <= 140 })
    }

    static let conditions: [(text: String, metric: String, value: Double, holds: Bool)] = [
        ("p99<10ms", "deliver.p99", 9_999_999, true), ("p99<10ms", "deliver.p99", 10_000_000, false),
        ("p99.9 <= 12ms", "deliver.p99.9", 12_000_000, true), ("p50<600us", "deliver.p50", 600_001, false),
        ("result.max<1s", "result.max", 999_999_999, true), ("rate>=50k", "rate", 50_000, true),
        ("rate>=50k/s", "rate", 49_999, false),
        ("max<2min", "deliver.max", 119e9, true), ("sendLag.p99<1ms", "sendLag.p99", 2e6, false),
        ("rate>50000", "rate", 50_000, false), ("loss=0", "loss", 0, true), ("repeats==0", "repeats", 1, false),
        ("serverCPU<=11µs", "serverCPU", 11_000, true), ("generatorBusy<90%", "generatorBusy", 95, false),
    ]

    @Test("a condition compares in the unit it was written in", arguments: conditions)
    func condition(text: String, metric: String, value: Double, holds: Bool) throws {
        let requirement = try Requirement(parsing: text, mode: .live)
        #expect(requirement.metric == metric)
        #expect(requirement.holds(for: value) == holds)
    }

    @Test("memory is compared in bytes, and an unmeasured metric fails a condition")
    func memory() throws {
        let requirement = try Requirement(parsing: "rssPerConnection<=1KiB", mode: .idle)
        var report = Report(title: "t")
        #expect(report.failed([requirement]) == [requirement])
        report.add("rssPerConnection", 1_024, "memory")
        #expect(report.failed([requirement]).isEmpty)
    }

    @Test("devices survive the file; another app's file and an invalid line are refused")
    func devicesFile() throws {
        let devices = (1...3).map { DeviceIdentity(cid: DeviceID(high: 9, low: $0), secret: [0, 255, UInt8($0)]) }
        let bytes = DevicesFile.render(devices, appID: "app")
        #expect(try DevicesFile.parse(bytes, appID: "app", path: "f") == devices)
        #expect(throws: CommandFailure.self) { try DevicesFile.parse(bytes, appID: "apple", path: "f") }
        #expect(throws: CommandFailure.self) {
            try DevicesFile.parse(bytes + Array("x y\n".utf8), appID: "app", path: "f")
        }
        #expect(throws: CommandFailure.self) { try DevicesFile.parse([], appID: "app", path: "f") }
    }
}
