import Configuration
import Delivery
import Platform
import Testing
import Wire

@testable import Gateway

/// Checks that docs/Semantics.md, "Tables of the store", names the removal of every table's rows, and that the code has no other
/// table.
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

    /// Returns the cells of a row of the page: the table's rows and their removal.
    private func row(_ name: String) -> [Substring]? {
        lines.first { $0.hasPrefix("| `\(name)` | ") }?.split(separator: " | ")
    }

    @Test("each table has a line with its rows and their removal", arguments: StoreKey.Table.allCases)
    func tables(table: StoreKey.Table) {
        let cells = row("\(table)") ?? []
        #expect(cells.count == 3 && cells.allSatisfy { $0.count > 2 }, "\(table)")
    }

    @Test("each kind of the gateway's own rows has a line", arguments: MetaRows.Kind.allCases)
    func kinds(kind: MetaRows.Kind) {
        let cells = row("meta: \(kind)") ?? []
        #expect(cells.count == 3 && cells.allSatisfy { $0.count > 2 }, "\(kind)")
    }

    /// The row types, each with the lines about its rows.
    private static let forms = [
        "AliasRow": ["alias", "alias: token"], "AttributesRow": ["attributes"],
        "CallbackRow": ["taskCallback"], "CallRow": ["request"],
        "CountersRow": ["counters"],
        "DeviceRow": ["device"], "FeedHeadRow": ["feed"], "FeedRow": ["feed", "event"], "JobRow": ["job"],
        "LateEventRow": ["trace"], "LedgerRow": ["taskMessage"], "MessageRow": ["message", "vendorMessage"],
        "PushRow": ["request"], "RequestRow": ["request"],
        "TargetsRow": ["taskTargets"], "TaskEventRow": ["taskEvent"], "TaskRow": ["task", "broadcast"],
        "TraceRow": ["trace"], "UpstreamRow": ["upstream"],
    ]
    /// Functions that create names for rows of `alias` besides aliases, each with the line about these rows.
    private static let names = ["tokenName": "alias: token"]

    @Test("each row type has a line; a new type needs a line about its removal")
    func forms() throws {
        let found = try Self.matches(of: /(?:struct|enum) (\w+Row)\b/, below: "Sources/Core/Delivery/Store/Rows")
        #expect(found == Set(Self.forms.keys))
        for line in Set(Self.forms.values.joined()) { #expect(row(line)?.count == 3, "\(line)") }
    }

    @Test("each kind of name that shares a table with aliases has a line")
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

    @Test("no line is about a missing table")
    func others() {
        let known =
            StoreKey.Table.allCases.map { "\($0)" } + MetaRows.Kind.allCases.map { "meta: \($0)" }
            + Self.forms.values.joined()
        let named = lines.filter { $0.hasPrefix("| `") }.compactMap { $0.dropFirst(3).split(separator: "`").first }
        #expect(Set(named.map(String.init)) == Set(known))
    }
}
