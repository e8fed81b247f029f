internal import EventLoops
internal import PushAPI

extension HTTPExchange {
    /// Calls `body` with the request as the API reads it; its pointers die with the call.
    func withRequest<Result>(_ body: (APIRequest) -> Result) -> Result {
        body(
            APIRequest(
                method: APIRequest.Method(method), target: rawTargetBytes, token: headerBytes("token"),
                authorization: headerBytes("authorization"), body: self.body, peerIsLoopback: isLoopback))
    }

    func respond(_ response: APIResponse) {
        var headers: [(name: String, value: String)] = []
        if let allow = response.allow { headers.append(("Allow", allow)) }
        if response.asksForBearer { headers.append(("WWW-Authenticate", "Bearer")) }
        respond(
            status: response.status, contentType: response.contentType.headerValue, headers: headers,
            body: response.body)
    }
}

extension APIRequest.Method {
    fileprivate init(_ method: HTTPMethod) {
        switch method {
        case .get: self = .get
        case .post: self = .post
        case .put: self = .put
        case .delete: self = .delete
        case .head: self = .head
        // No route has these, so that the API says 405 in its own words.
        case .patch, .options, .trace, .query: self = .other
        }
    }
}

extension LoopCounter {
    static func answered(_ status: Int, isAdmin: Bool) -> LoopCounter {
        switch status {
        case ..<400: isAdmin ? .admin2xx : .http2xx
        case ..<500: isAdmin ? .admin4xx : .http4xx
        default: isAdmin ? .admin5xx : .http5xx
        }
    }
}
