/// The admin listener's refusals (docs/use/Errors.md, "Handoff and admin API").
internal import JSON

struct AdminFault: Error, Equatable {
    enum Code: String, CaseIterable {
        case badJSON, invalidParameter, unauthorized, forbidden, notFound, methodNotAllowed, bodyTooLarge, conflict,
            unavailable

        var httpStatus: Int {
            switch self {
            case .badJSON, .invalidParameter: 400
            case .unauthorized: 401
            case .forbidden: 403
            case .notFound: 404
            case .methodNotAllowed: 405
            case .bodyTooLarge: 413
            case .conflict: 409
            case .unavailable: 503
            }
        }
    }

    var code: Code
    var message: String
    var allow: String?

    init(_ code: Code, _ message: String, allow: String? = nil) {
        (self.code, self.message, self.allow) = (code, message, allow)
    }

    static let notFound = AdminFault(.notFound, "no such path")
    static func invalid(_ message: String) -> AdminFault { AdminFault(.invalidParameter, message) }
    static func method(_ allowed: String) -> AdminFault {
        AdminFault(.methodNotAllowed, "use \(allowed)", allow: allowed)
    }

    var response: APIResponse {
        let body: JSONObject = ["error": ["code": code.rawValue, "message": message] as JSONObject]
        return APIResponse(
            status: code.httpStatus, body: body.bytes, allow: allow, asksForBearer: code == .unauthorized)
    }
}

extension APIResponse {
    /// Returns a temporary refusal: the gateway is starting or stopping, or the store is behind; the call may be repeated.
    package static func adminUnavailable(_ message: String) -> APIResponse {
        AdminFault(.unavailable, message).response
    }
}
