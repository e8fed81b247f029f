import Glibc
import Testing

@testable import Gateway

/// A gateway that runs in the test's process.
enum SmallGateway {
    static func run(loops: Int = 1, _ body: (Gateway) throws -> Void) throws {
        try run(loops: loops, lives: 1) { gateway, _ in try body(gateway) }
    }

    /// Starts and stops a gateway several times on the same data; `body` gets the number of earlier starts.
    static func run(loops: Int = 1, lives: Int, _ body: (Gateway, Int) throws -> Void) throws {
        let folder = TemporaryFolder()
        let path = "\(folder.path)/data"
        defer { remove(path) }
        for life in 0..<lives { try run(loops: loops, at: path) { try body($0, life) } }
    }

    private static func run(loops: Int, at path: String, _ body: (Gateway) throws -> Void) throws {
        let text = """
            {demo: true, loops: \(loops), device: {listen: '127.0.0.1:0'}, senders: {listen: 'off'},
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

    static func remove(_ path: String) {
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

    /// Waits for a flag, for a few seconds at most.
    static func isSet(_ flag: Flag, atMost looks: Int = 6_000) -> Bool {
        for _ in 0..<looks {
            if flag.isSet { return true }
            usleep(10_000)
        }
        return false
    }
}
