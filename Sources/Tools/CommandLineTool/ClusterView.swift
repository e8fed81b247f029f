internal import Foundation
internal import TextForms

/// The answer of `GET /v1/cluster`, as a table.
struct ClusterView {
    struct Node {
        let number: Int
        let address: String
        let release: String
        let leaseMilliseconds: Int
        let isDrained: Bool
        let isLeaving: Bool
    }

    private struct Part {
        let number: Int
        let owner: Int?
        let isOpen: Bool
    }

    let name: String
    let node: Int
    let nodes: [Node]
    private let parts: [Part]
    private let registerAge: Int
    private let registerError: String?

    /// - Throws: `refused` for an answer of another form.
    init(_ answer: GatewayHTTP.Answer) throws(CommandFailure) {
        let object = answer.object
        func number(_ value: Any?) -> Int { (value as? NSNumber)?.intValue ?? 0 }
        guard let name = object["name"] as? String, let nodes = object["nodes"] as? [[String: Any]],
            let parts = object["parts"] as? [[String: Any]]
        else { throw .refused("the answer describes no cluster: is that the admin listener of a gateway?") }
        (self.name, node) = (name, number(object["node"]))
        (registerAge, registerError) = (
            number(object["registerAgeMilliseconds"]), (object["registerError"] as? String).map(TerminalText.plain)
        )
        self.nodes = nodes.map { node in
            Node(
                number: number(node["node"]), address: node["address"] as? String ?? "",
                release: node["release"] as? String ?? "", leaseMilliseconds: number(node["leaseMilliseconds"]),
                isDrained: node["drained"] as? Bool ?? false, isLeaving: node["leaving"] as? Bool ?? false)
        }
        self.parts = parts.map { part in
            let owner = number(part["node"])
            return Part(
                number: number(part["part"]), owner: owner == 0 ? nil : owner,
                isOpen: part["state"] as? String == "open")
        }
    }

    /// Returns the partitions that the gateway owns, including those it is taking over or handing over.
    func parts(of node: Int) -> [Int] { parts.filter { $0.owner == node }.map(\.number) }

    func owner(of part: Int) -> Int? { parts.first { $0.number == part && $0.isOpen }?.owner }

    /// The partitions in handover or without an owner.
    var unserved: [Int] {
        let living = Set(nodes.map(\.number))
        return parts.filter { !$0.isOpen || !living.contains($0.owner ?? 0) }.map(\.number)
    }

    /// Whether every partition is served and the gateway's view is recent.
    var isWhole: Bool { unserved.isEmpty && registerAge <= Self.leaseMilliseconds }

    private static let leaseMilliseconds = 2_000

    var table: String {
        var rows = [["GATEWAY", "ADDRESS", "RELEASE", "LEASE", "STATE", "PARTS"]]
        for node in nodes {
            let state = node.isLeaving ? "leaving" : node.isDrained ? "drained" : "serves"
            let numbers = parts(of: node.number)
            let list = numbers.isEmpty ? "none" : numbers.map { "\($0)" }.joined(separator: " ")
            let tenths = (max(0, node.leaseMilliseconds) + 50) / 100
            rows.append([
                "\(node.number)\(node.number == self.node ? "*" : "")", node.address.isEmpty ? "-" : node.address,
                node.release, "\(tenths / 10).\(tenths % 10) s", state, "\(numbers.count): \(list)",
            ])
        }
        var widths = [Int](repeating: 0, count: rows[0].count)
        for row in rows { for (column, text) in row.enumerated() { widths[column] = max(widths[column], text.count) } }
        var lines = ["cluster \(name), \(parts.count) parts, as gateway \(node) (*) sees it"]
        for row in rows {
            let cells = row.enumerated().map { column, text in
                column == row.count - 1 ? text : HelpText.pad(text, widths[column] + 2)
            }
            lines.append(cells.joined())
        }
        let missing = unserved
        lines.append(
            "parts without owner: " + (missing.isEmpty ? "none" : missing.map { "\($0)" }.joined(separator: " ")))
        if registerAge > Self.leaseMilliseconds || registerError != nil {
            let reason = registerError.map { ": \($0)" } ?? ""
            lines.append("the register in Redis was last reached \(registerAge) ms ago\(reason)")
        }
        return lines.joined(separator: "\n")
    }
}
