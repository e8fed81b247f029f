/// The paths and methods of a listener.
///
/// The table is used for dispatch and for the header `Allow` of a 405. A test compares it with docs/use/openapi.yaml, so each
/// call is documented.
package struct RouteTable<Endpoint: Sendable>: Sendable {
    /// A path with its endpoints by method, in the order of the header `Allow`.
    package struct Route: Sendable {
        /// The path in OpenAPI's notation, such as `/v2/{appId}/auth`; a name in braces matches any one segment.
        package let path: String
        package let methods: [RouteMethod<Endpoint>]
        let allow: String

        /// Creates a route; HEAD is served like GET, and the server omits the body.
        init(_ path: String, _ methods: [RouteMethod<Endpoint>]) {
            self.path = path
            self.methods = methods.flatMap {
                $0.method == .get ? [$0, RouteMethod(method: .head, endpoint: $0.endpoint)] : [$0]
            }
            allow = self.methods.map { "\($0.method)".uppercased() }.joined(separator: ", ")
        }
    }

    enum Match {
        case endpoint(Endpoint)
        /// The path exists, but not with this method.
        case otherMethod(allow: String)
        case none
    }

    package let routes: [Route]
    // Flat arrays, so that a lookup needs no nested array. The last of fifty routes is found in about a hundred nanoseconds.
    private var text: [UInt8] = []
    /// The ends of the segments in `text`; a parameter has no bytes.
    private var ends: [Int] = []
    /// The index in `ends` of each route's first segment, and at last the number of all segments.
    private var starts: [Int] = [0]

    init(_ routes: [Route]) {
        self.routes = routes
        for route in routes {
            for segment in route.path.utf8.split(separator: UInt8(ascii: "/")) {
                if segment.first != UInt8(ascii: "{") { text += segment }
                ends.append(text.count)
            }
            starts.append(ends.count)
        }
    }

    /// All calls as texts, such as `POST /v2/{appId}/auth`.
    package var calls: [String] {
        routes.flatMap { route in route.methods.map { "\("\($0.method)".uppercased()) \(route.path)" } }
    }

    func match(_ path: RequestPath, _ method: APIRequest.Method) -> Match {
        guard !path.isTooDeep else { return .none }
        for index in routes.indices where isMatch(index, path) {
            for entry in routes[index].methods where entry.method == method { return .endpoint(entry.endpoint) }
            return .otherMethod(allow: routes[index].allow)
        }
        return .none
    }

    private func isMatch(_ route: Int, _ path: RequestPath) -> Bool {
        let first = starts[route]
        guard starts[route + 1] - first == path.count else { return false }
        // From the end, where most routes differ.
        for index in (0..<path.count).reversed() {
            let segment = first + index
            let start = segment == 0 ? 0 : ends[segment - 1]
            if start < ends[segment], !path.equals(index, text, start..<ends[segment]) { return false }
        }
        return true
    }
}

package struct RouteMethod<Endpoint: Sendable>: Sendable {
    package let method: APIRequest.Method
    let endpoint: Endpoint

    static func get(_ endpoint: Endpoint) -> Self { Self(method: .get, endpoint: endpoint) }
    static func post(_ endpoint: Endpoint) -> Self { Self(method: .post, endpoint: endpoint) }
    static func put(_ endpoint: Endpoint) -> Self { Self(method: .put, endpoint: endpoint) }
    static func patch(_ endpoint: Endpoint) -> Self { Self(method: .patch, endpoint: endpoint) }
    static func delete(_ endpoint: Endpoint) -> Self { Self(method: .delete, endpoint: endpoint) }
}
