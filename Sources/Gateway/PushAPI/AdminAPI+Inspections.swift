// Troubleshooting requests of operators, and actions on devices.

package import Delivery
internal import Directory
package import Wire

/// An operator's request about one app's devices and messages.
package enum InspectionRequest: Sendable {
    case recent(DeviceAddress, limit: Int)
    case devices(AppKey, after: DeviceCursor?, limit: Int)
    case alias(AliasName, AppKey)
    /// Answered with `InspectionAnswers.task`, or with the trace of the task's only message.
    case task(TaskID, AppKey)
    /// Answered with `AdminAnswer.trace`.
    case taskMessage(TaskID, DeviceAddress)
    case request(RequestName)
    case jobs(apps: Set<AppKey>?, limit: Int)
    /// Answered with `InspectionAnswers.changed`; `by` is the credential's name, for the log.
    case change(DeviceAddress, DeviceChange, by: String)
}

/// A request id with all keys under which it may be stored, because the operator does not name the endpoint that it was used
/// with.
package struct RequestName: Sendable {
    package var text: String
    package var app: AppKey
    /// The keys of single pushes: one row each, in the bucket of the device.
    package var singles: [CallKey]
    /// The keys of calls to several devices, with the endpoint's name; the digest determines the bucket.
    package var calls: [(name: String, key: CallKey)]
}

extension RequestName {
    private static let singleEndpoints: [StaticString] = ["push/single/cid", "push/single/batch/cid", "publish"]
    private static let callEndpoints: [StaticString] = [
        "push/single/alias", "push/single/batch/alias", "push/single/cid_by_tag", "push/list/message", "push/list",
    ]
    private static let broadcastEndpoints: [StaticString] = ["push/all", "push/tag", "push/fast_custom_tag"]

    init(_ text: String, app: AppKey) {
        let bytes = Array(text.utf8)
        func key(_ endpoint: StaticString, isBroadcast: Bool = false) -> CallKey {
            let words = bytes.withUnsafeBytes {
                isBroadcast
                    ? broadcastRequestKey(app: app, endpoint: endpoint, requestID: $0)
                    : requestKey(app: app, endpoint: endpoint, requestID: $0)
            }
            return CallKey(high: words.0, low: words.1)
        }
        (self.text, self.app) = (text, app)
        singles = Self.singleEndpoints.map { key($0) }
        calls = Self.callEndpoints.map { ("\($0)", key($0)) }
        calls += Self.broadcastEndpoints.map { ("\($0)", key($0, isBroadcast: true)) }
    }
}

extension AdminAPI {
    func inspection(
        _ endpoint: AdminEndpoint, _ request: APIRequest, _ path: RequestPath
    ) throws(AdminFault) -> InspectionRequest {
        switch endpoint {
        case .deviceMessages:
            let address = try device(path, request, at: 4, for: .trace).address
            return .recent(address, limit: try limit(request))
        case .devicePurge: return try change(path, request, .purge)
        case .deviceReplay: return try change(path, request, .replay)
        case .deviceDisconnect: return try change(path, request, .disconnect)
        case .deviceUnblacklist: return try change(path, request, .unblacklist)
        case .devices:
            let app = try app(path, request, for: .trace).app
            return .devices(app.key, after: try cursor(request, app), limit: try limit(request))
        case .alias:
            let app = try app(path, request, for: .trace).app
            let (text, type) = (path.text(4), queryValue("alias_type", of: request.target) ?? "")
            // Any name that a call can have bound, whatever the configured length.
            guard NameRules.isAlias(text), text.unicodeScalars.count <= Limits.aliasCharacterCount else {
                throw .invalid(
                    "an alias has 1 to \(Limits.aliasCharacterCount) letters, digits, _ and Chinese characters")
            }
            guard type.isEmpty || NameRules.isAliasType(type), type.unicodeScalars.count <= Limits.aliasCharacterCount
            else {
                throw .invalid(
                    "alias_type has at most \(Limits.aliasCharacterCount) letters, digits, _, - and Chinese characters")
            }
            return .alias(AliasName(app: app.key, text: text, type: type), app.key)
        case .task: return .task(try task(path), try app(path, request, for: .trace).app.key)
        case .taskMessage:
            let address = try device(path, request, at: 6, for: .trace).address
            return .taskMessage(try task(path), address)
        case .request:
            let app = try app(path, request, for: .trace).app
            let text = path.text(4)
            guard text.utf8.count <= Limits.requestIDByteCount else {
                throw .invalid("a request id has at most \(Limits.requestIDByteCount) bytes")
            }
            return .request(RequestName(text, app: app.key))
        default:
            let credential = try authorize(request, for: .trace)
            return .jobs(apps: credential.apps, limit: try limit(request))
        }
    }

    /// Returns the device that a path names, and the caller's credential.
    func device(
        _ path: RequestPath, _ request: APIRequest, at place: Int, for permission: Credential.Permission
    ) throws(AdminFault) -> (address: DeviceAddress, credential: Credential) {
        let (app, credential) = try app(path, request, for: permission)
        guard let cid = DeviceID(hex: path[place]) else { throw .invalid("cid is 32 lower-case hex digits") }
        return (DeviceAddress(app: app.key, bucket: app.bucket(of: cid), cid: cid), credential)
    }

    private func change(
        _ path: RequestPath, _ request: APIRequest, _ change: DeviceChange
    ) throws(AdminFault) -> InspectionRequest {
        let (address, credential) = try device(path, request, at: 4, for: .admin)
        return .change(address, change, by: credential.name)
    }

    private func task(_ path: RequestPath) throws(AdminFault) -> TaskID {
        guard let task = TaskID(text: path.text(4)) else { throw .invalid("taskId is one that a publish answered") }
        return task
    }

    private func limit(_ request: APIRequest) throws(AdminFault) -> Int {
        guard let text = queryValue("limit", of: request.target) else { return Limits.inspectedCount }
        guard let number = Int(text), 1...InspectionBounds.answerLimit ~= number else {
            throw .invalid("limit is an integer from 1 to \(InspectionBounds.answerLimit)")
        }
        return number
    }

    private func cursor(_ request: APIRequest, _ app: App) throws(AdminFault) -> DeviceCursor? {
        guard let text = queryValue("after", of: request.target) else { return nil }
        guard let cid = DeviceID(hex: Array(text.utf8)) else { throw .invalid("after is a cid") }
        return DeviceCursor(bucket: app.bucket(of: cid), item: cid.low)
    }
}
