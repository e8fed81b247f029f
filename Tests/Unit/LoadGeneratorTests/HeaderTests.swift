import Testing

@testable import LoadGenerator

@Suite("Header and progress")
struct HeaderTests {
    private var header: RunHeader {
        RunHeader(
            startedAt: 1_764_000_000_123,
            host: RunHeader.Host(
                name: "bench-1", processor: "Some CPU", cores: 2, memoryByteCount: 8 << 30, kernel: "Linux 6.1 x86_64"),
            version: "1.2.3", gatewayVersion: nil,
            command: ["bench"]
                + RunHeader.hidingSecrets([
                    "live", "--master-secret", "hidden1", "--app-secret=hidden2", "--json", "a b.json",
                ]))
    }

    @Test("a report begins with its time, place, settings and headline figures")
    func report() {
        var report = Report(title: "live: 20 devices")
        report.header = header
        report.headlineNames = Mode.live.headlineNames
        report.add("rate", 1_000, "messages delivered a second")
        report.add("loss", 0, "lost")
        let text = report.table([])
        for part in [
            "date: 2025-11-24T16:00:00.123Z", "bench-1: Some CPU, 2 cores, 8.0 GiB, Linux 6.1 x86_64",
            "longwire 1.2.3, gateway unknown (give --admin-token)",
            "command: longwire bench live --master-secret '…' '--app-secret=…' --json 'a b.json'",
            "1,000 messages delivered a second; 0 lost",
        ] {
            #expect(text.contains(part), "\(part) in \(text)")
        }
        #expect(!text.contains("TLS") && report.json(mode: .live, []).contains("\"tls\":[]"))
        report.header?.secureListeners = ["devices", "push API"]
        #expect(report.table([]).contains("\n  TLS: devices, push API\n"))
        #expect(report.json(mode: .live, []).contains("\"tls\":[\"devices\",\"push API\"]"))
        #expect(!text.contains("hidden1") && !text.contains("hidden2"))
        let json = report.json(mode: .live, [])
        #expect(
            json.contains("\"run\":{\"date\":\"2025-11-24T16:00:00.123Z\"")
                && json.contains("\"headline\":[\"rate\",\"loss\"]"))
    }

    @Test("every headline figure is measured in its mode", arguments: Mode.allCases)
    func headlines(mode: Mode) {
        #expect(mode.headlineNames.count >= 3)
        for name in mode.headlineNames { #expect(mode.metricNames.contains(name), "\(mode): \(name)") }
    }

    @Test("this machine has a name, cores, memory and a kernel")
    func machine() {
        let host = RunHeader.Host.present()
        #expect(!host.name.isEmpty && !host.processor.isEmpty && host.cores > 0 && host.memoryByteCount > 1 << 26)
        #expect(host.kernel.hasPrefix("Linux "))
        #expect(RunHeader.Host.processor(cpuinfo: "flags\t: a\nmodel name\t: A  CPU @ 2GHz\n") == "A CPU @ 2GHz")
        #expect(RunHeader.Host.processor(cpuinfo: "processor : 0\n") == nil)
        #expect(GatewayVersion.version(metrics: "# HELP\nlongwire_build_info{version=\"0.1.0\"} 1\n") == "0.1.0")
        #expect(GatewayVersion.version(metrics: "nothing") == nil)
    }

    @Test("a pipe gets a line at intervals, a terminal one updated line, both with the remaining time")
    func progress() {
        final class Sink: @unchecked Sendable {
            // `@unchecked Sendable` is sound because the test is on one thread.
            var time: Int64 = 0
            var lines: [String] = []
        }
        let sink = Sink()
        var pipe = Progress(isQuiet: false, isTerminal: false, now: { sink.time }, put: { sink.lines.append($0) })
        for second in 0...20 {
            sink.time = Int64(second) * 1_000_000_000
            pipe.show("publishing, \(second) accepted", fraction: Double(second) / 20)
        }
        #expect(
            sink.lines == [
                "longwire bench: publishing, 5 accepted, 25 %, 15 s left\n",
                "longwire bench: publishing, 10 accepted, 50 %, 10 s left\n",
                "longwire bench: publishing, 15 accepted, 75 %, 5 s left\n",
                "longwire bench: publishing, 20 accepted, 100 %\n",
            ])
        (sink.lines, sink.time) = ([], 0)
        var terminal = Progress(isQuiet: false, isTerminal: true, now: { sink.time }, put: { sink.lines.append($0) })
        terminal.show("connecting: 0 of 4", fraction: 0)
        sink.time = 600_000_000_000
        terminal.show("connecting: 1 of 4", fraction: 0.25)
        terminal.show("draining", fraction: nil)
        #expect(sink.lines[0] == "\r[........................] connecting: 0 of 4")
        #expect(sink.lines[1].hasPrefix("\r[######..................] connecting: 1 of 4, 30 min left"))
        #expect(sink.lines[2].hasPrefix("\rdraining") && !sink.lines[2].contains("left"))
        (sink.lines, sink.time) = ([], 0)
        var quiet = Progress(isQuiet: true, isTerminal: false, now: { sink.time }, put: { sink.lines.append($0) })
        sink.time = 60_000_000_000
        quiet.show("publishing", fraction: 0.5)
        #expect(sink.lines.isEmpty)
    }
}
