/// The paths and methods that a listener serves.
///
/// The dispatcher finds its endpoint here, a 405 its header `Allow`, and a test compares the whole with
/// docs/use/openapi.yaml: what is not in the table is not served, and what is served is documented.
package struct RouteTable<Endpoint: Sendable>: Sendable {
    /// One path, with its endpoints by method in the order in which `Allow` names them.
    package struct Route: Sendable {
        /// As OpenAPI writes it: `/v2/{appId}/auth`; what is in braces is any one segment.
        package let path: String
        package let methods: [RouteMethod<Endpoint>]
        let allow: String

        /// HEAD is served wherever GET is: the same, and the server leaves the body out.
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
        /// The path is served, though not with this method.
        case otherMethod(allow: String)
        case none
    }

    package let routes: [Route]
    // Flat, so that a look-up touches no array inside an array: a push of a busy sender finds its route at once, and the
    // last of fifty costs some hundred nanoseconds.
    private var text: [UInt8] = []
    /// Ends of segments in `text`; a parameter has no bytes.
    private var ends: [Int] = []
    /// The first segment of each route, and one more.
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

    /// Each path with each of its methods, `POST /v2/{appId}/auth`.
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
        // From the end: what tells routes apart stands there.
        for index in (0..<path.count).reversed() {
            let segment = first + index
            let start = segment == 0 ? 0 : ends[segment - 1]
            if start < ends[segment], !path.equals(index, text, start..<ends[segment]) { return false }
        }
        return true
    }
}

/// A method of a path, and what serves it.
package struct RouteMethod<Endpoint: Sendable>: Sendable {
    package let method: APIRequest.Method
    let endpoint: Endpoint

    static func get(_ endpoint: Endpoint) -> Self { Self(method: .get, endpoint: endpoint) }
    static func post(_ endpoint: Endpoint) -> Self { Self(method: .post, endpoint: endpoint) }
    static func put(_ endpoint: Endpoint) -> Self { Self(method: .put, endpoint: endpoint) }
    static func patch(_ endpoint: Endpoint) -> Self { Self(method: .patch, endpoint: endpoint) }
    static func delete(_ endpoint: Endpoint) -> Self { Self(method: .delete, endpoint: endpoint) }
}
