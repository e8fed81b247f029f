// The admin listener's API: handoff, traces, devices, health.

internal import APNs
internal import Cryptography
package import Delivery
internal import JSON
package import Wire

/// The gateway's action for a request on the admin listener.
package enum AdminAction {
    case respond(APIResponse)
    /// Leases due jobs, with a long poll; answered with `HandoffAnswer.lease`.
    case lease(LeaseRequest)
    /// Settles jobs on their loops (`MessageID.bucket`); answered with `HandoffAnswer.verdicts`.
    case results(ResultsRequest)
    /// Receipts of vendors, with the caller's apps (`nil` for all).
    case receipts([VendorReceipt], apps: Set<AppKey>?)
    /// Extends leases; answered with `HandoffAnswer.verdicts`.
    case extend(ExtendRequest)
    /// Asks the device's loop; answered with `AdminAnswer.device`.
    case device(DeviceAddress)
    /// Asks the message's loop; answered with `AdminAnswer.trace`, which hides apps outside the scope.
    case message(MessageID, scope: Set<AppKey>?)
    /// Pushes an operator's message to one device, with the body of `PublicAPI.push`; `by` is the credential's name, for the log.
    case push(App, by: String)
    /// Inspects devices or messages; answered with the function of `InspectionAnswers` named by its case.
    case inspect(InspectionRequest)
    case feed(FeedRequest)
    /// Returns the metrics page, without apps outside the scope.
    case metrics(scope: Set<AppKey>?)
    /// Returns the values of the console's overview over the last hour; they name no app.
    case metricHistory
    /// Answered with `ClusterAnswer.status` or `ClusterAnswer.none`.
    case cluster
    /// Carries out an operator's cluster request; answered with `ClusterAnswer.done` or a refusal.
    case registerRequest(ClusterRequest)
    /// Starts a backup of the store.
    ///
    /// `by` is the credential's name, for the log. Answered with `BackupAnswer`.
    case backup(name: String, by: String)
    /// Answered with `BackupAnswer.status`.
    case backupState
    /// Reads or changes an app; answered with `AppAnswer`.
    case app(AppRequest)
    /// Starts or cancels a drain.
    ///
    /// `by` is the credential's name. Answered with `DrainAnswer.status`.
    case drain(DrainRequest, by: String)
    /// Answered with `DrainAnswer.status`.
    case drainState
    /// Exchanges the code of a one-time link for an admin token; answered with `AdminAnswer.signIn`.
    case signIn(code: [UInt8])
    /// Returns the health findings, without those about apps outside the scope.
    case health(scope: Set<AppKey>?)
    case healthz
    case readyz
}

/// A sender service's request for jobs.
package struct LeaseRequest: Sendable {
    /// The credential's name, for logs and metrics.
    package var holder: String
    package var channel: VendorChannel
    /// The apps that the credential may see; `nil` for all.
    package var apps: Set<AppKey>?
    package var limit: Int
    package var leaseMilliseconds: Int64
    /// The longest wait for a first job; 0 to return at once.
    package var waitMilliseconds: Int64
    package var leaseID: (UInt64, UInt64)

    package init(
        holder: String, channel: VendorChannel, apps: Set<AppKey>?, limit: Int, leaseMilliseconds: Int64,
        waitMilliseconds: Int64, leaseID: (UInt64, UInt64)
    ) {
        (self.holder, self.channel, self.apps, self.limit) = (holder, channel, apps, limit)
        (self.leaseMilliseconds, self.waitMilliseconds, self.leaseID) = (leaseMilliseconds, waitMilliseconds, leaseID)
    }
}

package struct ResultsRequest: Sendable {
    package var results: [JobResult]
    /// The apps that the credential may see; `nil` for all.
    ///
    /// Jobs of other apps are reported as unknown.
    package var apps: Set<AppKey>?
    package init(results: [JobResult], apps: Set<AppKey>?) { (self.results, self.apps) = (results, apps) }
}

package struct ExtendRequest: Sendable {
    package struct Item: Sendable {
        package var job: MessageID
        package var leaseID: (UInt64, UInt64)
        package init(job: MessageID, leaseID: (UInt64, UInt64)) { (self.job, self.leaseID) = (job, leaseID) }
    }
    package var items: [Item]
    /// The lease's new duration, counted from now and not from its old end.
    package var leaseMilliseconds: Int64
    /// As in `ResultsRequest`.
    package var apps: Set<AppKey>?
    package init(items: [Item], leaseMilliseconds: Int64, apps: Set<AppKey>?) {
        (self.items, self.leaseMilliseconds, self.apps) = (items, leaseMilliseconds, apps)
    }
}

/// Parses requests into actions; confined to one event loop.
package final class AdminAPI {
    /// Replaced at each reload, like the credentials.
    package var registry: AppRegistry
    package var credentials: CredentialSet
    let random: RandomWords
    private let parser = JSONParser(byteLimit: Limits.adminBodyByteCount)

    package init(registry: AppRegistry, credentials: CredentialSet, random: RandomWords = RandomWords()) {
        (self.registry, self.credentials, self.random) = (registry, credentials, random)
    }

    /// Returns an action for any input; never traps or throws.
    package func handle(_ request: APIRequest, now: GatewayTime) -> AdminAction {
        do throws(AdminFault) {
            return try route(request)
        } catch {
            return .respond(error.response)
        }
    }

    private func route(_ request: APIRequest) throws(AdminFault) -> AdminAction {
        let path = RequestPath(request.target)
        switch AdminEndpoint.table.match(path, request.method) {
        case .endpoint(let endpoint):
            let action = try perform(endpoint, request, path)
            // Checked after the credential, so that an unauthenticated caller learns nothing about parameters.
            try checkQuery(request, of: endpoint)
            return action
        case .otherMethod(let allow): throw .method(allow)
        case .none: throw .notFound
        }
    }

    private func perform(
        _ endpoint: AdminEndpoint, _ request: APIRequest, _ path: RequestPath
    ) throws(AdminFault) -> AdminAction {
        switch endpoint {
        case .lease: return .lease(try lease(try body(request, .handoff), request))
        case .results:
            let (value, credential) = try body(request, .handoff)
            return .results(ResultsRequest(results: try results(value), apps: credential.apps))
        case .receipts:
            let (value, credential) = try body(request, .handoff)
            return .receipts(try receipts(value), apps: credential.apps)
        case .extend:
            let (value, credential) = try body(request, .handoff)
            return .extend(try extend(value, apps: credential.apps))
        case .message:
            let credential = try authorize(request, for: .trace)
            guard let message = MessageID(hex: path[2]), message.bucket != nil else {
                throw .invalid("msgId is 32 lower-case hex digits as the gateway gave them")
            }
            return .message(message, scope: credential.apps)
        case .apps:
            let credential = try authorize(request, for: nil)
            guard registry.isComplete else {
                throw AdminFault(.unavailable, "this gateway does not know all apps yet, retry")
            }
            return .respond(AppAnswer.list(registry.apps { credential.sees($0) }))
        case .app: return .app(.show(try app(path, request, for: nil).app.appID))
        case .appCreate: return try appChange(.create, request, path)
        case .appChange: return try appChange(.change, request, path)
        case .appDelete: return try appChange(.delete, request, path)
        case .appRotate: return try appChange(.rotate, request, path)
        case .appEnable: return try appChange(.enable, request, path)
        case .appDisable: return try appChange(.disable, request, path)
        case .push:
            let (app, credential) = try app(path, request, for: .admin)
            guard app.isEnabled else { throw AdminFault(.conflict, "the app \(app.appID) is disabled") }
            return .push(app, by: credential.name)
        case .device: return .device(try device(path, request, at: 4, for: .trace).address)
        case .devices, .deviceMessages, .devicePurge, .deviceReplay, .deviceDisconnect, .deviceUnblacklist, .alias,
            .task, .taskMessage, .request, .jobs:
            return .inspect(try inspection(endpoint, request, path))
        case .upstream: return .feed(try feedRead(.upstream, request, path))
        case .upstreamAck: return .feed(try feedAcknowledgement(.upstream, request, path))
        case .events: return .feed(try feedRead(.events, request, path))
        case .eventsAck: return .feed(try feedAcknowledgement(.events, request, path))
        case .metrics:
            return .metrics(scope: try authorize(request, for: nil).apps)
        case .metricHistory:
            _ = try authorize(request, for: nil)
            return .metricHistory
        case .cluster:
            _ = try authorize(request, for: .admin)
            return .cluster
        case .clusterDrain:
            let (value, credential) = try body(request, .admin)
            try requireAllApps(credential, for: "a drain is for the partitions of all of them")
            return .registerRequest(try StrictObject.drain(value))
        case .clusterMove:
            let (value, credential) = try body(request, .admin)
            try requireAllApps(credential, for: "a partition has devices of all of them")
            return .registerRequest(try StrictObject.move(value))
        case .backup:
            let (value, credential) = try body(request, .admin)
            try requireAllApps(credential)
            return .backup(name: try StrictObject.backup(value), by: credential.name)
        case .backupState:
            try requireAllApps(try authorize(request, for: .admin))
            return .backupState
        case .drain:
            let (value, credential) = try body(request, .admin)
            try requireAllApps(credential, for: "a drain is for the devices of all of them")
            return .drain(try StrictObject.deviceDrain(value), by: credential.name)
        case .drainState:
            _ = try authorize(request, for: .admin)
            return .drainState
        case .signIn:
            try checkLoopback(request)
            return .signIn(code: CredentialSet.bearer(request.authorization) ?? [])
        case .health: return .health(scope: try authorize(request, for: nil).apps)
        // Health checks need no credential. On this listener, which only operators reach, they also name findings.
        case .healthz: return .healthz
        case .readyz: return .readyz
        }
    }

    /// Refuses unknown parameters; ignoring one could answer a different question.
    private func checkQuery(_ request: APIRequest, of endpoint: AdminEndpoint) throws(AdminFault) {
        guard let known = endpoint.queryNames,
            let name = unknownQueryName(in: request.target, known: known)
        else { return }
        let names = known.map { "\($0)" }.joined(separator: ", ")
        throw .invalid("the call has no parameter \(name); \(known.isEmpty ? "it has none" : "it has: \(names)")")
    }

    private func requireAllApps(
        _ credential: Credential, for reason: String = "a backup has all of them"
    ) throws(AdminFault) {
        guard credential.apps == nil else {
            throw AdminFault(.forbidden, "credential \(credential.name) is for some apps, and \(reason)")
        }
    }

    /// Returns the app that the path names, if the request's credential may see it and has `permission`.
    func app(
        _ path: RequestPath, _ request: APIRequest, for permission: Credential.Permission?
    ) throws(AdminFault) -> (app: App, credential: Credential) {
        let credential = try authorize(request, for: permission)
        guard let app = registry.known(path.text(2)), credential.sees(app.key) else {
            throw AdminFault(.notFound, "no such app, or not one of this credential's")
        }
        return (app, credential)
    }

    /// Returns the request's credential, and checks that it has `permission`; `nil` accepts any credential.
    func authorize(
        _ request: APIRequest, for permission: Credential.Permission?
    ) throws(AdminFault) -> Credential {
        try checkLoopback(request)
        guard let credential = credentials.credential(authorization: request.authorization) else {
            throw AdminFault(.unauthorized, "this needs Authorization: Bearer with a configured credential's token")
        }
        if let permission, !credential.permits(permission) {
            throw AdminFault(.forbidden, "credential \(credential.name) lacks the permission \(permission.rawValue)")
        }
        return credential
    }

    private func checkLoopback(_ request: APIRequest) throws(AdminFault) {
        guard credentials.isLoopbackOnly, !request.peerIsLoopback else { return }
        throw AdminFault(.forbidden, "no credentials are configured, so only loopback peers are served")
    }

    /// Returns a POST's body, after a check of the sender's permission.
    func body(
        _ request: APIRequest, _ permission: Credential.Permission
    ) throws(AdminFault) -> (value: JSONValue, credential: Credential) {
        let credential = try authorize(request, for: permission)
        guard request.body.count <= Limits.adminBodyByteCount else {
            throw AdminFault(.bodyTooLarge, "a body has at most \(Limits.adminBodyByteCount) bytes")
        }
        do throws(JSONError) {
            return (try parser.parse(request.body), credential)
        } catch {
            throw AdminFault(.badJSON, "the body is not JSON: \(error.explanation)")
        }
    }

    private func lease(
        _ body: (value: JSONValue, credential: Credential), _ request: APIRequest
    ) throws(AdminFault) -> LeaseRequest {
        let fields = try StrictObject(body.value, known: ["channel", "max", "leaseSeconds", "waitSeconds"])
        let name = try fields.text("channel") ?? "\(VendorChannel.apns.name)"
        guard let channel = VendorChannel(named: name) else {
            let names = VendorChannel.allCases.map { "\($0.name)" }.joined(separator: ", ")
            throw .invalid("channel is one of: \(names)")
        }
        let limit = try fields.integer("max", in: 1...Int64(HandoffBounds.jobCount)) ?? 100
        let seconds = try fields.integer("leaseSeconds", in: HandoffBounds.leaseSeconds) ?? 60
        let wait = try fields.integer("waitSeconds", in: Limits.waitSeconds) ?? 0
        return LeaseRequest(
            holder: body.credential.name, channel: channel, apps: body.credential.apps, limit: Int(limit),
            leaseMilliseconds: seconds * 1_000, waitMilliseconds: wait * 1_000,
            leaseID: (random.next() | 1, random.next()))
    }

    private func results(_ body: JSONValue) throws(AdminFault) -> [JobResult] {
        let list = try StrictObject.list(body, "results")
        var results: [JobResult] = []
        for (index, item) in list.elements.enumerated() {
            guard index < HandoffBounds.jobCount else {
                throw .invalid("results has at most \(HandoffBounds.jobCount)")
            }
            results.append(try StrictObject.result(item, at: "results[\(index)]", leaseID: nil))
        }
        return results
    }

    private func receipts(_ body: JSONValue) throws(AdminFault) -> [VendorReceipt] {
        var receipts: [VendorReceipt] = []
        for (index, item) in try StrictObject.list(body, "receipts").elements.enumerated() {
            guard index < HandoffBounds.jobCount else {
                throw .invalid("receipts has at most \(HandoffBounds.jobCount)")
            }
            receipts.append(try StrictObject.receipt(item, at: "receipts[\(index)]"))
        }
        return receipts
    }

    private func extend(_ body: JSONValue, apps: Set<AppKey>?) throws(AdminFault) -> ExtendRequest {
        let fields = try StrictObject(body, known: ["jobs", "leaseSeconds"])
        guard let seconds = try fields.integer("leaseSeconds", in: HandoffBounds.leaseSeconds) else {
            throw .invalid("leaseSeconds is missing")
        }
        guard let jobs = body["jobs"], jobs.kind == .array else { throw .invalid("jobs is an array") }
        var items: [ExtendRequest.Item] = []
        for (index, item) in jobs.elements.enumerated() {
            guard index < HandoffBounds.jobCount else { throw .invalid("jobs has at most \(HandoffBounds.jobCount)") }
            let fields = try StrictObject(item, known: ["jobId", "leaseId"], at: "jobs[\(index)]")
            items.append(ExtendRequest.Item(job: try fields.job(), leaseID: try fields.lease()))
        }
        return ExtendRequest(items: items, leaseMilliseconds: seconds * 1_000, apps: apps)
    }
}
