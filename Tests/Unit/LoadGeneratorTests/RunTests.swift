import Foundation
import Synchronization
import Testing
import TextForms
import Wire

@testable import LoadGenerator

/// Short whole runs against a small gateway in this process; their counts matter, not their figures.
@Suite("Runs", .serialized)
struct RunTests {
    @Test("a live run delivers, acks and counts every message, and leaves a devices file for the next run")
    func live() throws {
        try withGateway { gateway, folder in
            let arguments = ["live", "--devices", "40", "--in-flight", "50", "--threads", "2"] + short
            let first = try run(gateway, folder, arguments)
            #expect(value(first, "delivered") > 0)
            #expect(value(first, "delivered") == value(first, "accepted"))
            #expect(value(first, "rate") > 0)
            #expect(value(first, "loss") == 0 && value(first, "unanswered") == 0)
            #expect(value(first, "repeats") == 0 && value(first, "disordered") == 0)
            #expect(value(first, "deliver.p50") > 0 && value(first, "result.max") > 0)
            #expect(first.failures.isEmpty)
            #expect(gateway.registrations.load(ordering: .relaxed) == 40)
            #expect(gateway.badProofs.load(ordering: .relaxed) == 0)
            #expect(gateway.acksBeyond.load(ordering: .relaxed) == 0)
            _ = try run(gateway, folder, arguments)
            #expect(gateway.registrations.load(ordering: .relaxed) == 40)
        }
    }

    @Test("a paced run publishes its rate and no more")
    func paced() throws {
        try withGateway { gateway, folder in
            let report = try run(gateway, folder, ["live", "--devices", "10", "--rate", "2000"] + short)
            // 0.1 s of warm-up and 0.3 s measured. A busy machine may lag, but never lead.
            #expect((1...800).contains(value(report, "accepted")))
            #expect(value(report, "loss") == 0)
        }
    }

    @Test("lost, repeated and refused messages are counted")
    func misbehaviour() throws {
        let behaviour = FakeGateway.Behaviour(losesEvery: 50, repeatsEvery: 7, refusesEvery: 11)
        try withGateway(behaviour) { gateway, folder in
            let report = try run(
                gateway, folder, ["live", "--devices", "5", "--rate", "2000", "--drain", "0.2"] + short)
            let accepted = value(report, "accepted")
            #expect(value(report, "loss") > 0)
            // A delivered message may lack its answer at the end of the drain time.
            let missing = value(report, "loss") - (accepted - value(report, "delivered"))
            #expect((0...value(report, "unanswered")).contains(missing))
            #expect(value(report, "repeats") > 0)
            #expect(value(report, "refused") > 0)
            #expect(report.failures.keys.contains("publish refused with 20001 not today"))
            let requirement = try Requirement(parsing: "loss=0", mode: .live)
            #expect(report.failed([requirement]) == [requirement])
        }
    }

    @Test("devices that the gateway has removed are registered again and stored")
    func forgotten() throws {
        try withGateway(FakeGateway.Behaviour(forgets: true)) { gateway, folder in
            let report = try run(gateway, folder, ["idle", "--connections", "6", "--hold", "0.1"])
            #expect(value(report, "connections") == 6)
            #expect(gateway.registrations.load(ordering: .relaxed) == 12)
            let file = try DevicesFile.load(folder + "/bench-devices", appID: FakeGateway.appID)
            #expect(Set(file.map(\.cid.low)) == Set(7...12))
        }
    }

    @Test("an idle run authenticates all connections and reports their cost per process")
    func idle() throws {
        try withGateway { gateway, folder in
            let pid = String(ProcessInfo.processInfo.processIdentifier)
            let report = try run(gateway, folder, ["idle", "--connections", "30", "--hold", "0.1", "--pid", pid])
            #expect(value(report, "connections") == 30)
            #expect(value(report, "failed") == 0 && value(report, "lost") == 0)
            #expect(value(report, "connectRate") > 0)
            #expect(report.value(of: "rssPerConnection") != nil)
            #expect(report.value(of: "serverCPUCores") != nil)
        }
    }

    @Test("an offline run enqueues for absent devices and receives everything once on their return")
    func offline() throws {
        try withGateway { gateway, folder in
            let report = try run(
                gateway, folder, ["offline", "--devices", "20", "--messages", "5", "--drain", "10", "--payload", "8"])
            #expect(value(report, "accepted") == 100)
            #expect(value(report, "delivered") == 100)
            #expect(value(report, "loss") == 0 && value(report, "repeats") == 0)
            #expect(value(report, "enqueueRate") > 0 && value(report, "drainRate") > 0)
            #expect(gateway.acksBeyond.load(ordering: .relaxed) == 0)
        }
    }

    @Test("refusals of a busy gateway are retried until all is enqueued")
    func busy() throws {
        try withGateway(FakeGateway.Behaviour(busyEvery: 9)) { gateway, folder in
            let report = try run(
                gateway, folder,
                ["offline", "--devices", "20", "--messages", "5", "--in-flight", "10", "--drain", "10"])
            #expect(value(report, "accepted") == 100 && value(report, "refused") == 0)
            #expect(value(report, "busy") == 12)
            #expect(value(report, "delivered") == 100 && value(report, "loss") == 0)
        }
    }

    @Test("an http run authenticates, keeps its connections and counts answers by code", arguments: [1, 4])
    func http(pipeline: Int) throws {
        try withGateway { gateway, folder in
            let arguments = ["http", "--connections", "3", "--devices", "5", "--pipeline", "\(pipeline)"] + short
            let report = try run(gateway, folder, arguments)
            #expect(value(report, "accepted") > 0)
            #expect(value(report, "accepted") == Double(gateway.pushes.load(ordering: .relaxed)))
            #expect(value(report, "refused") == 0 && value(report, "failed") == 0)
            #expect(value(report, "answer.p99") > 0)
            #expect(report.failures.isEmpty)
        }
    }

    @Test("a push over HTTP to connected devices is delivered once, singly and in batches", arguments: [1, 5])
    func httpConnected(batch: Int) throws {
        try withGateway(FakeGateway.Behaviour(refusesOfBatch: batch > 1 ? 5 : 0)) { gateway, folder in
            let arguments =
                ["http", "--connections", "2", "--devices", "6", "--connected", "--batch", "\(batch)"] + short
            let report = try run(gateway, folder, arguments)
            #expect(value(report, "accepted") > 0)
            #expect(value(report, "delivered") == value(report, "accepted"))
            #expect(value(report, "loss") == 0 && value(report, "repeats") == 0 && value(report, "unanswered") == 0)
            #expect(value(report, "deliver.p99") > 0)
            let sum = value(report, "accepted") + value(report, "refused")
            #expect(sum == Double(gateway.pushes.load(ordering: .relaxed)))
            // The last of each batch of five.
            #expect(value(report, "refused") * 4 == (batch > 1 ? value(report, "accepted") : 0))
        }
    }

    @Test("a storm reconnects all devices, bounded in flight, and drains them", arguments: [0, 3])
    func storm(messages: Int) throws {
        try withGateway { gateway, folder in
            let report = try run(
                gateway, folder,
                ["storm", "--devices", "30", "--messages", "\(messages)", "--handshakes", "4", "--threads", "2"])
            #expect((1...4).contains(gateway.mostGreeting.load(ordering: .relaxed)))
            #expect(value(report, "connections") == 30)
            #expect(value(report, "failed") == 0 && value(report, "lost") == 0)
            #expect(value(report, "delivered") == Double(30 * messages))
            #expect(value(report, "loss") == 0 && value(report, "repeats") == 0)
            #expect(value(report, "helloRate") > 0 && value(report, "authenticatedSeconds") > 0)
            #expect((report.value(of: "drainedSeconds") != nil) == (messages > 0))
        }
    }

    @Test("a broadcast run reaches every connected device once, and not those that are only registered")
    func broadcast() throws {
        try withGateway { gateway, folder in
            let report = try run(
                gateway, folder,
                ["broadcast", "--devices", "12", "--registered", "20", "--messages", "3", "--threads", "2"])
            #expect(gateway.registrations.load(ordering: .relaxed) == 20)
            #expect(gateway.broadcasts.load(ordering: .relaxed) == 3)
            #expect(value(report, "connections") == 12 && value(report, "broadcasts") == 3)
            #expect(value(report, "delivered") == 36 && value(report, "acks") > 0)
            #expect(value(report, "loss") == 0 && value(report, "repeats") == 0)
            #expect(value(report, "rate") > 0 && value(report, "answer.p50") > 0 && value(report, "deliver.max") > 0)
            #expect(report.failures.isEmpty)
            // The devices that stayed offline are stored for the next run, too.
            #expect(try DevicesFile.load(folder + "/bench-devices", appID: FakeGateway.appID).count == 20)
        }
    }

    @Test("lost, repeated and refused broadcasts are reported")
    func broadcastMisbehaviour() throws {
        let arguments = ["broadcast", "--devices", "10", "--messages", "2", "--drain", "1"]
        try withGateway(FakeGateway.Behaviour(losesEvery: 10, repeatsEvery: 4)) { gateway, folder in
            let report = try run(gateway, folder, arguments)
            #expect(value(report, "loss") == 2 && value(report, "delivered") == 18)
            // Of twenty: the fourth, eighth and so on, except the last, which was lost.
            #expect(value(report, "repeats") == 4)
        }
        try withGateway(FakeGateway.Behaviour(refusesBroadcast: 2)) { gateway, folder in
            let error = #expect(throws: CommandFailure.self) { try run(gateway, folder, arguments) }
            #expect(error?.description.contains("30014") == true)
        }
    }

    @Test("a handoff run gives devices tokens, creates jobs, and settles each once", arguments: [1, 2])
    func handoff(threads: Int) throws {
        try withGateway { gateway, folder in
            let report = try run(
                gateway, folder,
                [
                    "handoff", "--devices", "12", "--messages", "10", "--lease", "7", "--connections", "3", "--threads",
                    "\(threads)",
                ])
            #expect(gateway.tokens.load(ordering: .relaxed) == 12)
            for name in ["jobs", "leased", "settled"] { #expect(value(report, name) == 120, "\(name)") }
            #expect(value(report, "loss") == 0 && value(report, "repeats") == 0 && value(report, "stale") == 0)
            #expect(gateway.settlements.load(ordering: .relaxed) == 120)
            #expect(value(report, "rate") > 0 && value(report, "lease.p99") > 0 && value(report, "settle.max") > 0)
        }
    }

    @Test("jobs that are lost or leased twice are counted by any worker")
    func handoffMisbehaviour() throws {
        try withGateway(FakeGateway.Behaviour(losesEvery: 10, leasesTwiceEvery: 9)) { gateway, folder in
            let report = try run(
                gateway, folder,
                [
                    "handoff", "--devices", "10", "--messages", "10", "--lease", "4", "--connections", "2", "--threads",
                    "2",
                ])
            #expect(value(report, "jobs") == 100)
            // The gateway counts the publishes of all workers together, so one worker's tenth and ninth differ from another's.
            // The ninetieth is lost and not leased again. As many jobs are leased as were accepted, so the run ends with the
            // last.
            #expect(value(report, "loss") == 10)
            #expect(value(report, "repeats") == 10)
        }
    }

    @Test("a refused handoff credential ends the run with the reason")
    func handoffRefused() throws {
        try withGateway { gateway, folder in
            let arguments = gateway.arguments.map { $0 == FakeGateway.adminToken ? "wrong" : $0 }
            let options = try BenchOptions(
                parsing: ["handoff", "--devices", "2", "--messages", "1", "--data", folder, "--quiet"] + arguments)
            let error = #expect(throws: CommandFailure.self) { try Run(options).perform() }
            #expect(error?.description.contains("HTTP 401") == true)
        }
    }

    @Test("a report is written to the requested file, and an unwritable folder is refused at once")
    func files() throws {
        try withGateway { gateway, folder in
            let base = ["idle", "--connections", "3", "--hold", "0.5", "--data", folder, "--quiet"] + gateway.arguments
            let json = folder + "/r.json"
            #expect(LoadGenerator.run(arguments: base + ["--json", json]) == .done)
            let object = try JSONSerialization.jsonObject(with: Data(contentsOf: URL(fileURLWithPath: json)))
            #expect((object as? [String: Any])?["format"] as? Int == 1)
            #expect(LoadGenerator.run(arguments: base + ["--json", folder + "/none/r.json"]) == .usage)
        }
    }

    @Test("the exit code distinguishes a failed condition, a refused app and an unreachable gateway")
    func exitCodes() throws {
        try withGateway { gateway, folder in
            let base = ["live", "--devices", "3", "--data", folder, "--json", "-", "--quiet"] + short
            #expect(LoadGenerator.run(arguments: base + gateway.arguments + ["--require", "p99<1h"]) == .usage)
            #expect(LoadGenerator.run(arguments: base + gateway.arguments + ["--require", "loss=0"]) == .done)
            #expect(LoadGenerator.run(arguments: base + gateway.arguments + ["--require", "p99<1ns"]) == .refused)
            let stranger = gateway.arguments.map { $0 == FakeGateway.masterSecret ? "wrong" : $0 }
            #expect(LoadGenerator.run(arguments: base + stranger) == .unreachable)
            gateway.stop()
            #expect(LoadGenerator.run(arguments: base + gateway.arguments) == .unreachable)
        }
    }

    private let short = ["--duration", "0.3", "--warmup", "0.1"]

    private func run(_ gateway: FakeGateway, _ folder: String, _ arguments: [String]) throws -> Report {
        let options = try BenchOptions(parsing: arguments + gateway.arguments + ["--data", folder, "--quiet"])
        let report = try Run(options).perform()
        // The metrics allowed in conditions and those in reports must be the same.
        for metric in report.metrics { #expect(options.mode.metricNames.contains(metric.name), "\(metric.name)") }
        return report
    }

    private func value(_ report: Report, _ name: String) -> Double { report.value(of: name) ?? -1 }

    private func withGateway(
        _ behaviour: FakeGateway.Behaviour = FakeGateway.Behaviour(),
        _ body: (FakeGateway, String) throws -> Void
    ) throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("bench-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let gateway = FakeGateway(behaviour)
        defer { gateway.stop() }
        try body(gateway, folder.path)
    }
}
