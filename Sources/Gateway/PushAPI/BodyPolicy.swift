package import Delivery

/// What becomes of a request whose head is here and whose body is still to come.
package enum BodyPolicy: Equatable {
    /// Its body is taken, up to `byteLimit` bytes; `isProven`: it comes with a credential.
    case take(byteLimit: Int, isProven: Bool)
    case refuse(APIResponse)
}

// No body is kept before it is known that its sender may send it: the memory that a stranger can take is what the calls
// without a credential need.
extension PublicAPI {
    /// Says what becomes of a request without its body, of which so much is announced: 0 for chunks, and what has come of
    /// them once it is too much.
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
                        // A gateway of this cluster made the token: whether its app is there is asked with the body.
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
    /// Answers without a token.
    fileprivate var isOpen: Bool {
        switch self {
        case .healthz, .readyz, .check, .authenticate, .revokeToken, .uploadLog, .receipt: true
        default: false
        }
    }
}

extension AdminAPI {
    /// As `PublicAPI.judge`.
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
