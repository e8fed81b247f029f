internal import EventLoops
internal import PushAPI

extension HTTPExchange {
    /// Calls `body` with the request as an `APIRequest`, whose pointers are valid only during the call.
    func withRequest<Result>(_ body: (APIRequest) -> Result) -> Result {
        body(
            APIRequest(
                method: APIRequest.Method(method), target: rawTargetBytes, token: headerBytes("token"),
                authorization: headerBytes("authorization"), proof: headerBytes("x-longwire-proof"), body: self.body,
                peerIsLoopback: isLoopback, network: network))
    }

    func respond(_ response: APIResponse) {
        respond(
            status: response.status, contentType: response.contentType.headerValue, headers: response.headers,
            body: response.body)
    }
}

extension HTTPRequestHead {
    /// The request without its body, as an `APIRequest` whose pointers are valid only during the call.
    var request: APIRequest {
        APIRequest(
            method: APIRequest.Method(method), target: target, token: header("token"),
            authorization: header("authorization"), peerIsLoopback: isLoopback)
    }
}

extension HTTPReply {
    init(_ response: APIResponse) {
        self.init(
            status: response.status, contentType: response.contentType.headerValue, headers: response.headers,
            body: response.body)
    }
}

extension HTTPPrecheck {
    init(_ judgement: BodyPolicy) {
        switch judgement {
        case .take(let limit, let isProven): self = .take(byteLimit: limit, isProven: isProven)
        case .refuse(let response): self = .refuse(HTTPReply(response))
        }
    }
}

extension APIResponse {
    fileprivate var headers: [(name: String, value: String)] {
        var headers: [(name: String, value: String)] = []
        if let allow { headers.append(("Allow", allow)) }
        if let retryAfterSeconds { headers.append(("Retry-After", "\(retryAfterSeconds)")) }
        if asksForBearer { headers.append(("WWW-Authenticate", "Bearer")) }
        return headers
    }
}

extension APIRequest.Method {
    fileprivate init(_ method: HTTPMethod) {
        switch method {
        case .get: self = .get
        case .post: self = .post
        case .put: self = .put
        case .patch: self = .patch
        case .delete: self = .delete
        case .head: self = .head
        // No route accepts these methods, so the API answers 405 with its own body.
        case .options, .trace, .query: self = .other
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
