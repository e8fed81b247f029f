package import Delivery

/// The decision about a request whose head has arrived but not its body.
package enum BodyPolicy: Equatable {
    /// The body is received, up to `byteLimit` bytes; `isProven` means that the request has a credential.
    case take(byteLimit: Int, isProven: Bool)
    case refuse(APIResponse)
}

// A body is buffered only after its sender was authenticated. Calls without a credential may use only small bodies, which bounds
// the memory that unauthenticated callers can occupy.
extension PublicAPI {
    /// Decides about a request's body.
    ///
    /// `bodyByteCount` is the announced size. For a chunked body it is 0, or the received size once that is too large.
    package func judge(_ request: APIRequest, bodyByteCount: Int, now: GatewayTime) -> BodyPolicy {
        do throws(GetuiFault) {
            let path = RequestPath(request.target)
            switch PublicEndpoint.table.match(path, request.method) {
            case .otherMethod(let allow): throw .methodNotAllowed(allow)
            case .none: throw .notFound
            case .endpoint(let endpoint):
                var limit = Limits.openBodyByteCount
                if !endpoint.isOpen {
                    do throws(GetuiFault) {
                        _ = try identified(request, path, now: now)
                    } catch {
                        // A gateway of this cluster issued the token. The app is looked up after the body has arrived.
                        guard mayMissApps, error.isOfUnlistedApp, isOwnToken(request, appID: path.text(1)) else {
                            throw error
                        }
                    }
                    limit = Limits.requestBodyByteCount
                }
                guard bodyByteCount <= limit else { throw .size("body", "at most \(limit) bytes") }
                return .take(byteLimit: limit, isProven: !endpoint.isOpen)
            }
        } catch {
            return .refuse(error.response)
        }
    }
}

extension PublicEndpoint {
    /// Whether the endpoint needs no token.
    fileprivate var isOpen: Bool {
        switch self {
        case .healthz, .readyz, .check, .authenticate, .revokeToken, .uploadLog, .receipt: true
        default: false
        }
    }
}

extension AdminAPI {
    /// Decides as `PublicAPI.judge` does.
    package func judge(_ request: APIRequest, bodyByteCount: Int) -> BodyPolicy {
        do throws(AdminFault) {
            switch AdminEndpoint.table.match(RequestPath(request.target), request.method) {
            case .otherMethod(let allow): throw .method(allow)
            case .none: throw .notFound
            case .endpoint(let endpoint):
                let permission: Credential.Permission? =
                    switch endpoint {
                    case .lease, .results, .extend: .handoff
                    case .push, .appCreate, .appChange, .appRotate: .admin
                    default: nil
                    }
                if let permission { _ = try authorize(request, for: permission) }
                let takesBody = permission != nil
                let limit = takesBody ? Limits.adminBodyByteCount : Limits.openBodyByteCount
                guard bodyByteCount <= limit else {
                    throw AdminFault(.bodyTooLarge, "a body has at most \(limit) bytes")
                }
                return .take(byteLimit: limit, isProven: takesBody)
            }
        } catch {
            return .refuse(error.response)
        }
    }
}
