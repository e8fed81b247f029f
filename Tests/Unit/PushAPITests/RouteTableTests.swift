import Testing

@testable import PushAPI

@Suite("Route table")
struct RouteTableTests {
    static let methods: [APIRequest.Method] = [.get, .head, .post, .put, .delete, .other]

    private func path(_ target: String) -> RequestPath { Array(target.utf8).withUnsafeBytes { RequestPath($0) } }

    /// Returns a path of the route, with `x` for each parameter.
    private func example(_ route: String) -> String {
        route.split(separator: "/").map { $0.hasPrefix("{") ? "/x" : "/\($0)" }.joined()
    }

    private func checkTable<Endpoint: Equatable>(_ table: RouteTable<Endpoint>) {
        for route in table.routes {
            for method in Self.methods {
                let expected = route.methods.first { $0.method == method }?.endpoint
                // Getui's SDKs write doubled and trailing slashes.
                for target in [example(route.path), "/" + example(route.path), example(route.path) + "/?a=/b"] {
                    switch table.match(path(target), method) {
                    case .endpoint(let found): #expect(found == expected, "\(method) \(target)")
                    case .otherMethod(let allow):
                        #expect(expected == nil, "\(method) \(target)")
                        #expect(allow == route.methods.map { "\($0.method)".uppercased() }.joined(separator: ", "))
                    case .none: Issue.record("\(method) \(target) is not found")
                    }
                }
            }
        }
    }

    @Test("each path of the table is found with each of its methods, and 405 names them for any other")
    func whole() {
        checkTable(PublicEndpoint.table)
        checkTable(AdminEndpoint.table)
    }

    @Test(
        "a path outside the table is not found",
        arguments: [
            "/", "/v2", "/v2/demoApp", "/v2/demoApp/push", "/v2/demoApp/push/single", "/v2/demoApp/push/single/cid/x",
            "/v1/demoApp/push/single/cid", "/v2/demoApp/PUSH/single/cid", "/v2/demoApp/push/single/ci",
            "/v2/demoApp/push/single/cidd", "/v2/demoApp/user/alias/cid/x/y", "/healthz/x",
            "/v2/a/b/c/d/e/f/g/h/i/j/k/l",
        ])
    func unknown(target: String) {
        guard case .none = PublicEndpoint.table.match(path(target), .post) else {
            Issue.record("\(target) is found")
            return
        }
    }

    @Test("an unsupported method is 405 in the API's own format")
    func otherMethod() throws {
        let answer = try #require(Fixture().call(.other, "/v2/demoApp/push/single/cid").response)
        #expect(answer.status == 405)
        #expect(answer.allow == "POST")
        #expect(answer.text == #"{"code":405,"msg":"method not allowed, use POST"}"#)
    }
}
