import Delivery
import EventLoops
import Glibc
import Testing
import Wire

@testable import Gateway

/// The task coordinator of a gateway that runs in the test's own process.
@Suite("The task coordinator")
struct TaskCoordinatorTests {
    /// Starts a gateway with one loop, lets the test do something with it and stops it.
    private func withGateway(_ body: (Gateway) throws -> Void) throws {
        let folder = TemporaryFolder()
        let path = "\(folder.path)/data"
        defer { Self.remove(path) }
        let text = """
            {demo: true, loops: 1, device: {listen: '127.0.0.1:0'}, senders: {listen: 'off'},
             http: {listen: '127.0.0.1:0'}, admin: {listen: '127.0.0.1:0'},
             store: {path: '\(path)'}, log: {level: 'error'}}
            """
        var configuration = try ConfigurationFile.read(Array(text.utf8), file: "f")
        var random = SystemRandomNumberGenerator()
        let generated = try GeneratedCredentials.complete(&configuration, random: &random)
        let log = try Log(format: .text, level: .error)
        defer { log.close() }
        let gateway = try Gateway(configuration, generated: generated, log: log, acceptsClock: false)
        try gateway.start()
        defer { gateway.stop() }
        try body(gateway)
    }

    /// Removes a folder with folders in it.
    private static func remove(_ path: String) {
        if let folder = opendir(path) {
            var names: [String] = []
            while let entry = readdir(folder) {
                let name = withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                }
                if name != ".", name != ".." { names.append(name) }
            }
            closedir(folder)
            for name in names { remove("\(path)/\(name)") }
            rmdir(path)
        } else {
            unlink(path)
        }
    }

    private func isSet(_ flag: Flag) -> Bool {
        for _ in 0..<6_000 {
            if flag.isSet { return true }
            usleep(10_000)
        }
        return false
    }

    @Test("a close that is over elsewhere ends, and does not ask for ever", arguments: [TaskState.ending, .open])
    func closeThatIsOver(state: TaskState) throws {
        try withGateway { gateway in
            let key = AppKey(0xA55)
            let content = MessageContent(
                strategy: .liveElseVendor, timeToLive: 7_200_000, vendor: nil, lengths: MessageContent.Lengths(),
                arena: [])
            var record = TaskRecord(
                id: TaskID(kind: .app, month: 1, day: 1, home: key.home, random: (1, 1)), app: key, state: state,
                createdAt: 0, validUntil: 0, content: content)
            record.broadcast = BroadcastPlan(audience: TagExpression(), speed: 0)
            record.broadcast?.number = 4
            record.broadcast?.expiresAt = .max
            let scanned = record
            let isDone = Flag()
            gateway.context.members[0].submit { loop in
                loop.campaigns.coordinator.broadcastDue(scanned) { _ in isDone.set() }
            }
            #expect(isSet(isDone), "the scan goes on though no such broadcast is live")
        }
    }
}
