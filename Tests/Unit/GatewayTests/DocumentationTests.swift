import Configuration
import Testing
import TextForms

@testable import Gateway

/// These tests check that the handwritten docs/use/Operations.md is complete.
@Suite("Operations page")
struct DocumentationTests {
    private let page: String
    private let lines: [Substring]

    init() throws {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        page = String(
            decoding: try FileText.read("/\(root)/docs/use/Operations.md", limit: 1 << 20).bytes, as: UTF8.self)
        lines = page.split(separator: "\n")
    }

    private func grouped(_ number: Int64) -> String {
        var digits = Array("\(number)")
        var index = digits.count - 3
        while index > 0 {
            digits.insert(",", at: index)
            index -= 3
        }
        return String(digits)
    }

    @Test("every limit is listed with its default, its range and the time at which it takes effect")
    func limits() {
        for key in LimitKey.all {
            let row =
                "| `\(key.name)` | \(grouped(key.read(GatewayLimits()))) "
                + "| \(grouped(key.range.lowerBound))–\(grouped(key.range.upperBound)) "
                + "| \(key.changesAtReload ? "reload" : "restart") | "
            #expect(lines.contains { $0.hasPrefix(row) }, "\(row)")
        }
    }

    @Test("exactly the existing metrics are listed in order, each with its kind, its help and an action")
    func metrics() {
        let rows = lines.filter { $0.hasPrefix("| `longwire_") || $0.hasPrefix("| `process_") }
            .map { $0.dropFirst(2).dropLast(2).split(separator: " | ").map(String.init) }
            .filter { $0.count > 1 && Metric.Kind(rawValue: $0[1]) != nil }
        #expect(rows.map { $0[0] } == MetricCatalogue.all.map { "`\($0.name)`" })
        for (row, metric) in zip(rows, MetricCatalogue.all) {
            #expect(row.count == 4, "\(metric.name) needs a word on what to do")
            #expect(row[1] == metric.kind.rawValue && row[2] == metric.help, "\(metric.name)")
        }
    }

    @Test("every log event is listed", arguments: LogName.allCases)
    func events(name: LogName) {
        #expect(lines.contains { $0.hasPrefix("|") && $0.contains("`\(name.rawValue)`") })
    }

    @Test("every exit code is listed", arguments: ExitCode.allCases.filter { $0 != .refused && $0 != .unreachable })
    func exitCodes(code: ExitCode) {
        #expect(lines.contains { $0.hasPrefix("| \(code.rawValue) | ") })
    }

    @Test("every key of the configuration file is listed")
    func keys() {
        let text = """
            {zz: 1, device: {zz: 1, tls: {zz: 1}}, http: {zz: 1}, senders: {zz: 1}, admin: {zz: 1, tls: {zz: 1}}, store: {zz: 1},
             apps: [{zz: 1, apns: {zz: 1}, queue: {zz: 1}, push: {zz: 1}}], credentials: [{zz: 1}], hook: {zz: 1}, log: {zz: 1}}
            """
        let error = #expect(throws: ConfigurationError.self) {
            try ConfigurationFile.read(Array(text.utf8), file: "f")
        }
        let unknown = (error?.problems ?? []).filter { $0.text.hasPrefix("unknown key") }
        #expect(unknown.count == 15)
        for problem in unknown {
            let keys = problem.text.split(separator: "allowed here: ").last?.split(separator: ", ") ?? []
            #expect(!keys.isEmpty)
            for key in keys {
                let isThere = ["`\(key)`", ".\(key)`", ".\(key).", "`\(key)[", "`\(key)."].contains {
                    page.contains($0)
                }
                #expect(isThere, "\(problem.path): \(key)")
            }
        }
    }

    @Test("the example is a valid configuration, except for missing files")
    func example() throws {
        let start = try #require(page.split(separator: "```json5\n").dropFirst().first)
        let example = try #require(start.split(separator: "\n```").first)
        let error = #expect(throws: ConfigurationError.self) {
            try ConfigurationFile.read(Array(example.utf8), file: "/no/such/folder/longwire.json5")
        }
        for problem in error?.problems ?? [] { #expect(problem.text.contains("cannot be read"), "\(problem)") }
    }
}
