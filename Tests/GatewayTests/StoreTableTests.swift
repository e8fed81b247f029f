import Configuration
import Delivery
import Testing
import Wire

@testable import Gateway

/// docs/Semantics.md, "Tables of the store", says of every table what removes its rows; the code has no other table.
@Suite("Tables of the store")
struct StoreTableTests {
    private let lines: [Substring]

    init() throws {
        let root = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
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

    @Test("no line is about a table that is not there")
    func others() {
        let known = StoreKey.Table.allCases.map { "\($0)" } + MetaRows.Kind.allCases.map { "meta: \($0)" }
        let named = lines.filter { $0.hasPrefix("| `") }.compactMap { $0.dropFirst(3).split(separator: "`").first }
        #expect(Set(named.map(String.init)) == Set(known))
    }
}
