import Configuration
import Delivery
import Testing

@testable import Gateway
@testable import PushAPI

/// Checks the handwritten docs/use/openapi.yaml against the code.
@Suite("OpenAPI document")
struct OpenAPIDocumentTests {
    private let lines: [Substring]

    init() throws {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        let text = try FileText.read("/\(root)/docs/use/openapi.yaml", limit: 1 << 20).bytes
        lines = String(decoding: text, as: UTF8.self).split(separator: "\n")
    }

    private struct Call: Hashable, CustomStringConvertible {
        var method: String
        var path: String
        var description: String { "\(method) \(path)" }
    }

    /// The calls under `paths`, found by indentation; the value is true for the admin listener.
    private var documented: [Call: Bool] {
        var calls: [Call: Bool] = [:]
        var path: String?
        var isAdmin = false
        for line in lines.drop(while: { $0 != "paths:" }).dropFirst() {
            guard line.hasPrefix(" ") else { break }
            if line.hasPrefix("  /"), line.hasSuffix(":") {
                path = String(line.dropFirst(2).dropLast())
                isAdmin = false
            }
            guard let path, line.hasPrefix("    "), !line.hasPrefix("     ") else { continue }
            if line.hasPrefix("    servers:") { isAdmin = line.contains("127.0.0.1:7081") }
            let word = line.dropFirst(4).prefix { $0 != ":" }
            guard ["get", "head", "post", "put", "delete", "options", "patch", "trace"].contains(word) else { continue }
            #expect(calls.updateValue(isAdmin, forKey: Call(method: String(word), path: path)) == nil)
        }
        return calls
    }

    private func calls<Endpoint>(_ table: RouteTable<Endpoint>) -> Set<Call> {
        var calls = Set<Call>()
        for route in table.routes {
            for entry in route.methods {
                let isNew = calls.insert(Call(method: "\(entry.method)", path: route.path)).inserted
                #expect(isNew, "\(entry.method) \(route.path) is routed twice")
            }
        }
        return calls
    }

    @Test("exactly the served calls are documented")
    func routes() {
        let isPublic = calls(PublicEndpoint.table)
        let isAdmin = calls(AdminEndpoint.table)
        let served = isPublic.union(isAdmin)
        let documented = documented
        #expect(served.count > 40)
        // The page states once that HEAD is served wherever GET is.
        for call in served where call.method != "head" {
            #expect(documented[call] != nil, "\(call) is not in docs/use/openapi.yaml")
        }
        for call in served where call.method == "get" {
            #expect(served.contains(Call(method: "head", path: call.path)))
        }
        for (call, namesAdmin) in documented {
            #expect(served.contains(call), "\(call) is documented and not served")
            #expect(namesAdmin == !isPublic.contains(call), "\(call) names the wrong listener")
        }
    }

    /// Returns the items of all `{ enum: […] }` and `{ const: … }` after `key`.
    private func values(of key: String) -> Set<Substring> {
        var values = Set<Substring>()
        for line in lines {
            for part in line.ranges(of: "\(key): { ").map({ line[$0.upperBound...] }) {
                if part.hasPrefix("const: ") {
                    values.insert(part.dropFirst(7).prefix { $0 != " " })
                } else if part.hasPrefix("enum: [") {
                    let list = part.dropFirst(7).prefix { $0 != "]" }
                    for item in list.split(separator: ",") { values.insert(item.drop { $0 == " " }) }
                }
            }
        }
        return values
    }

    @Test("exactly the returned codes are documented")
    func codes() {
        let getui = values(of: "code").filter { $0.allSatisfy(\.isNumber) }
        // A path or method that is not served belongs to no operation.
        let answered = GetuiCode.allCases.filter { $0 != .notFound && $0 != .methodNotAllowed }
        #expect(getui == Set(answered.map { Substring("\($0.rawValue)") }))
        let admin = values(of: "code").filter { !$0.allSatisfy(\.isNumber) }
        let ofAdmin = AdminFault.Code.allCases.filter { $0 != .methodNotAllowed }
        #expect(admin == Set(ofAdmin.map { Substring($0.rawValue) }))
    }

    @Test("docs/use/Errors.md has a row for every code, with its status, and no others")
    func errorsPage() throws {
        let root = #filePath.split(separator: "/").dropLast(4).joined(separator: "/")
        let bytes = try FileText.read("/\(root)/docs/use/Errors.md", limit: 1 << 20).bytes
        let page = String(decoding: bytes, as: UTF8.self)
        let section = try #require(page.split(separator: "## Push API").last?.split(separator: "\n## ").first)
        var rows = Set<String>()
        for line in section.split(separator: "\n") where line.hasPrefix("| ") {
            let cells = line.split(separator: "|").map { $0.drop { $0 == " " }.prefix { $0 != " " } }
            guard cells.count > 2, Int(cells[0]) != nil, let status = Int(cells[1]), status >= 200 else { continue }
            rows.insert("\(cells[0]) \(status)")
        }
        #expect(rows == Set(GetuiCode.allCases.map { "\($0.rawValue) \($0.httpStatus)" }))
    }

    @Test("states and reasons have the names in answers")
    func names() {
        #expect(values(of: "State") == Set(FinalState.allCases.map { Substring("\($0.name)") } + ["pending"]))
        #expect(values(of: "event") == Set(TraceEvent.allCases.map { Substring("\($0.name)") }))
    }
}
