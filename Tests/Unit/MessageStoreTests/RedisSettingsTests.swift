import Foundation
import Testing

@testable import MessageStore

@Suite("The settings of Redis servers")
struct RedisSettingsTests {
    @Test("the check has exactly the lines of deploy/redis/redis.conf with their values")
    func lines() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let text = try String(contentsOf: root.appending(path: "deploy/redis/redis.conf"), encoding: .utf8)
        var lines: [String] = []
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            let words = line.split(separator: " ", maxSplits: 1).map { String($0) }
            try #require(words.count == 2, "\(line)")
            lines.append("\(words[0]) \(words[1] == "\"\"" ? "" : words[1])")
        }
        // The setting is not checked, because one primary with a replica runs without it.
        #expect(lines.contains("cluster-enabled yes"))
        lines.removeAll { $0 == "cluster-enabled yes" }
        #expect(RedisSettings.required.map { "\($0.name) \($0.value)" } == lines)
    }
}
