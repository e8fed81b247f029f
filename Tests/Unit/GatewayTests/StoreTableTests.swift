import Configuration
import Delivery
import Platform
import Testing
import Wire

@testable import Gateway

/// docs/Semantics.md, "Tables of the store", says of every table what removes its rows; the code has no other table.
@Suite("Tables of the store")
struct StoreTableTests {
    private let lines: [Substring]

    init() throws {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        let page = String(
            decoding: try FileText.read("/\(root)/docs/Semantics.md", limit: 1 << 20).bytes, as: UTF8.self)
        let section = try #require(page.split(separator: "\n## Tables of the store\n").dropFirst().first)
        lines = try #require(section.split(separator: "\n## ").first).split(separator: "\n")
    }

    /// The cells of a row of the page: what has the rows, and what removes them.
    private func row(_ name: String) -> [Substring]? {
        lines.first { $0.hasPrefix("| `\(name)` | ") }?.split(separator: " | ")
    }

    @Test("each has a line with its rows and what removes them", arguments: StoreKey.Table.allCases)
    func tables(table: StoreKey.Table) {
        let cells = row("\(table)") ?? []
        #expect(cells.count == 3 && cells.allSatisfy { $0.count > 2 }, "\(table)")
    }

    @Test("so has each kind of the gateway's own rows", arguments: MetaRows.Kind.allCases)
    func kinds(kind: MetaRows.Kind) {
        let cells = row("meta: \(kind)") ?? []
        #expect(cells.count == 3 && cells.allSatisfy { $0.count > 2 }, "\(kind)")
    }

    /// The forms of rows, each with the lines about the rows that have it.
    private static let forms = [
        "AliasRow": ["alias", "alias: token"], "CallRow": ["request"], "CountersRow": ["counters"],
        "DeviceRow": ["device"], "FeedHeadRow": ["feed"], "FeedRow": ["feed", "event"], "JobRow": ["job"],
        "LateEventRow": ["trace"], "LedgerRow": ["taskMessage"], "MessageRow": ["message", "vendorMessage"],
        "PushRow": ["request"], "RequestRow": ["request"],
        "TargetsRow": ["taskTargets"], "TaskEventRow": ["taskEvent"], "TaskRow": ["task", "broadcast"],
        "TraceRow": ["trace"], "UpstreamRow": ["upstream"],
    ]
    /// What makes names other than an alias's own for rows of `alias`, each with the line about these rows.
    private static let names = ["tokenName": "alias: token"]

    @Test("so has each form of a row; a new form needs a line that says what removes its rows")
    func forms() throws {
        let found = try Self.matches(of: /(?:struct|enum) (\w+Row)\b/, below: "Sources/Core/Delivery/Store/Rows")
        #expect(found == Set(Self.forms.keys))
        for line in Set(Self.forms.values.joined()) { #expect(row(line)?.count == 3, "\(line)") }
    }

    @Test("so has each sort of name that shares a table with aliases")
    func names() throws {
        let found = try Self.matches(of: /func (\w+)\([^)]*\) -> AliasName\b/, below: "Sources/Core/Delivery/Accepting")
        #expect(found == Set(Self.names.keys))
        for line in Self.names.values { #expect(row(line)?.count == 3, "\(line)") }
    }

    private static func matches(of pattern: Regex<(Substring, Substring)>, below folder: String) throws -> Set<String> {
        let path = "/" + #filePath.split(separator: "/").dropLast(4).joined(separator: "/") + "/" + folder
        var found: Set<String> = []
        for name in try FileSystem.list(path) where name.hasSuffix(".swift") {
            let text = String(decoding: try FileText.read("\(path)/\(name)", limit: 1 << 20).bytes, as: UTF8.self)
            for match in text.matches(of: pattern) { found.insert(String(match.1)) }
        }
        return found
    }

    @Test("no line is about a table that is not there")
    func others() {
        let known =
            StoreKey.Table.allCases.map { "\($0)" } + MetaRows.Kind.allCases.map { "meta: \($0)" }
            + Self.forms.values.joined()
        let named = lines.filter { $0.hasPrefix("| `") }.compactMap { $0.dropFirst(3).split(separator: "`").first }
        #expect(Set(named.map(String.init)) == Set(known))
    }
}
