import Foundation
import Glibc
import Platform
import Redis
import TestKit

private final class ChildProcess {
    private let process = Process()

    init(_ path: String, _ arguments: [String], log: String) throws {
        process.executableURL = URL(fileURLWithPath: path)
        process.arguments = arguments
        _ = FileManager.default.createFile(atPath: log, contents: nil)
        let output = FileHandle(forWritingAtPath: log)
        process.standardOutput = output
        process.standardError = output
        process.standardInput = FileHandle.nullDevice
        try process.run()
    }

    func signal(_ number: CInt) { if process.isRunning { kill(process.processIdentifier, number) } }

    func end() {
        guard process.isRunning else { return }
        kill(process.processIdentifier, SIGCONT)
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }

    deinit { end() }
}

/// A primary and its replicas on ports of `FreePorts`, created for one test and ended with this object.
final class RedisServers {
    let folder: TemporaryFolder
    private(set) var addresses: [RedisAddress] = []
    private var processes: [ChildProcess?] = []
    private let path: String

    /// The server's path in Debian and other distributions; `nil` if it is not installed.
    static let executable: String? = ["/usr/bin/redis-server", "/usr/local/bin/redis-server"].first {
        FileManager.default.isExecutableFile(atPath: $0)
    }

    init(replicaCount: Int = 1, settings: [String] = []) throws {
        guard let path = Self.executable else {
            throw WaitFailed(description: "there is no redis-server: run deploy/install-dependencies.sh test")
        }
        self.path = path
        folder = try TemporaryFolder(isInMemory: true)
        for number in 0...replicaCount {
            for attempt in 0..<20 {
                let address = RedisAddress(host: "127.0.0.1", port: try FreePorts.take())
                let place = "\(folder.path)/\(number)"
                try? FileManager.default.removeItem(atPath: place)
                try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
                let process = try start(address, place, settings)
                if try waitUntilServing(address, process) {
                    addresses.append(address)
                    processes.append(process)
                    break
                }
                guard attempt < 19 else { throw WaitFailed(description: "redis-server does not start in \(place)") }
            }
            if number > 0 {
                _ = try command(number, "REPLICAOF", addresses[0].host, "\(addresses[0].port)")
            }
        }
        try waitForReplicas(replicaCount)
    }

    private func start(_ address: RedisAddress, _ place: String, _ settings: [String]) throws -> ChildProcess {
        try ChildProcess(
            path,
            [
                "--port", "\(address.port)", "--bind", "127.0.0.1", "--dir", place, "--appendonly", "yes",
                "--appendfsync", "always", "--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay",
                "0", "--daemonize", "no",
                "--repl-ping-replica-period", "1", "--repl-diskless-load", "swapdb",
            ] + settings, log: place + "/log")
    }

    private func waitUntilServing(_ address: RedisAddress, _ process: ChildProcess) throws -> Bool {
        let limit = SystemClock.monotonicMilliseconds + 20_000
        while SystemClock.monotonicMilliseconds < limit {
            if let connection = try? RedisSockets().connect(to: address, timeoutMilliseconds: 1_000) {
                defer { connection.close() }
                let reply = try? connection.run([RedisCommand("PING")], timeoutMilliseconds: 1_000)
                if reply == [.status("PONG")] { return true }
            }
            Pause.milliseconds(10)
        }
        return false
    }

    func waitForReplicas(_ count: Int) throws {
        let limit = SystemClock.monotonicMilliseconds + 60_000
        while SystemClock.monotonicMilliseconds < limit {
            let text = try command(0, "INFO", "replication").text ?? ""
            if RedisInformation(text).replicas.count >= count { return }
            Pause.milliseconds(10)
        }
        throw WaitFailed(description: "the replicas do not come in step")
    }

    /// Runs a command on one server over a new connection.
    @discardableResult
    func command(_ server: Int, _ words: String...) throws -> RedisReply {
        try run(words, on: server)
    }

    @discardableResult
    func run(_ words: [String], on server: Int = 0) throws -> RedisReply {
        var command = RedisCommand()
        for word in words { command.append(word) }
        return try run(server, command)
    }

    @discardableResult
    func run(_ server: Int, _ command: RedisCommand) throws -> RedisReply {
        let connection = try RedisSockets().connect(to: addresses[server], timeoutMilliseconds: 5_000)
        defer { connection.close() }
        return try connection.run([command], timeoutMilliseconds: 10_000)[0]
    }

    func pause(_ server: Int) { processes[server]?.signal(SIGSTOP) }
    func resume(_ server: Int) { processes[server]?.signal(SIGCONT) }

    /// Kills a server at once, as a power failure does.
    func kill(_ server: Int) {
        processes[server]?.end()
        processes[server] = nil
    }

    func restart(_ server: Int) throws {
        kill(server)
        let process = try start(addresses[server], "\(folder.path)/\(server)", [])
        guard try waitUntilServing(addresses[server], process) else {
            throw WaitFailed(description: "redis-server does not start again")
        }
        processes[server] = process
    }

    func makeCluster() -> RedisCluster { RedisCluster(seeds: addresses, network: RedisSockets()) }

    func close() { for server in processes.indices { kill(server) } }
    deinit { close() }
}
