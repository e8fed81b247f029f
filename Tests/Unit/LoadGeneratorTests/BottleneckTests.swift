import Foundation
import Glibc
import Testing
import TextForms

@testable import LoadGenerator

@Suite("The bottleneck of a run")
struct BottleneckTests {
    typealias Facts = Bottleneck.Facts

    static let cases: [(facts: Facts, expected: Bottleneck)] = [
        (Facts(busiest: 0.95, generatorCores: 0.95, serverCores: 0.9, machineCores: 2), .generator),
        (Facts(busiest: 0.7, generatorCores: 0.7, serverCores: 1.2, machineCores: 2), .machine),
        (Facts(busiest: 0.4, generatorCores: 0.4, serverCores: 0.5, usedCores: 1.95, machineCores: 2), .machine),
        (Facts(busiest: 0.4, generatorCores: 0.4, serverCores: 1.0, usedCores: 1.5, machineCores: 2), .server),
        (Facts(busiest: 0.4, generatorCores: 0.4, machineCores: 2, waited: 0.01), .machine),
        (Facts(busiest: 0.4, generatorCores: 0.4, machineCores: 2, waited: 0.5), .server),
        // In a paced run lateness without a reason is the generator's fault. Lateness because the gateway accepted no more is
        // not.
        (Facts(busiest: 0.2, machineCores: 2, isPaced: true, sendLag: 5_000_000), .generator),
        (
            Facts(busiest: 0.2, machineCores: 2, isPaced: true, sendLag: 5_000_000, stalls: 3, isPaceKept: false),
            .server
        ),
        (Facts(busiest: 0.2, machineCores: 2, isPaced: true, sendLag: 200_000), .none),
        (Facts(busiest: 0.2, usedCores: 2, machineCores: 2, isPaced: true, sendLag: 200_000), .none),
        (Facts(busiest: 0.2, usedCores: 2, machineCores: 2, isPaced: true, sendLag: 5_000_000), .machine),
    ]

    @Test("the generator is suspected before the gateway", arguments: cases)
    func verdicts(facts: Facts, expected: Bottleneck) {
        let verdict = Bottleneck(facts)
        #expect(verdict == expected)
        // The report warns exactly when the figures are not the gateway's.
        #expect((verdict.note(facts) != nil) == (verdict == .generator || verdict == .machine))
    }

    @Test("the machine's load is read from the first line of /proc/stat, with iowait as idle")
    func machine() throws {
        let before = try #require(ProcessMeter.machine(stat: "cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3\n"))
        #expect(before == ProcessMeter.Machine(total: 1_000, idle: 850))
        let after = ProcessMeter.Machine(total: 1_200, idle: 900)
        #expect(after.coresUsed(since: before, of: 2) == 1.5)
        #expect(before.coresUsed(since: before, of: 2) == nil)
        #expect(ProcessMeter.machine(stat: "intr 5") == nil)
        #expect(ProcessMeter.machine().total > 0)
    }

    @Test("the process that listens on a port is found among many listeners")
    func listener() throws {
        let others = (0..<20).map { _ in FakeGateway() }
        let gateway = FakeGateway()
        defer { for one in others + [gateway] { one.stop() } }
        #expect(ServerFinder.listener(port: gateway.devicePort) == getpid())
        // The generator itself is never mistaken for the gateway.
        let endpoint = Endpoint(address: 0x7F00_0001, port: gateway.devicePort)
        #expect(ServerFinder.find(dataFolder: "/nonexistent", endpoint) == nil)
    }

    @Test("a file is read only as far as necessary")
    func prefix() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "longwire-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let path = folder.appending(path: "long").path
        try Data(repeating: 65, count: 1 << 20).write(to: URL(filePath: path))
        let found = try TextFile.read(path, limit: 128 << 10) { !$0.isEmpty }
        #expect((1...64 << 10).contains(try #require(found).count))
        #expect(throws: CommandFailure.self) { try TextFile.read(path, limit: 128 << 10) }
    }

    @Test("listeners are distinguished from connections in /proc/net/tcp")
    func table() {
        let text = """
              sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
               0: 0100007F:1B58 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0
               1: 0100007F:1B58 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4
               2: 0100007F:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0
            """
        #expect(ServerFinder.inodes(listeningOn: 7_000, in: Array(text.utf8)) == ["4711"])
        #expect(ServerFinder.inodes(listeningOn: 1, in: []) == [])
    }

    @Test("a lock file names a process")
    func lock() throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent("lock-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        #expect(ServerFinder.holder(of: path) == nil)
        try "4711\n".write(toFile: path, atomically: true, encoding: .utf8)
        #expect(ServerFinder.holder(of: path) == 4_711)
        try "nobody\n".write(toFile: path, atomically: true, encoding: .utf8)
        #expect(ServerFinder.holder(of: path) == nil)
    }

    @Test("a process's CPU and memory are its own", arguments: [getpid()])
    func meter(process: pid_t) throws {
        let meter = try ProcessMeter(process)
        let before = try #require(meter.cpu())
        var sum: UInt64 = 0
        while try #require(meter.cpu()) - before < 2_000_000 { sum &+= 1 }
        #expect(sum > 0)
        #expect(try #require(meter.memory()).resident > 1 << 20)
    }
}
