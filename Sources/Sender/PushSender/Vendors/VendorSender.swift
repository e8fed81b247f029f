internal import EventLoops
internal import Vendors

/// The sender of one vendor's channel.
///
/// Confined to its loop.
final class VendorSender: ChannelSender {
    struct Metrics: Sendable, Equatable {
        var tokenRequests: UInt64 = 0
        var tokenFailures: UInt64 = 0
    }

    let vendor: Vendor
    let register: JobRegister
    let transport: VendorTransport
    let settings: VendorSettings
    var metrics = Metrics()
    private var accounts: [String: VendorAccount] = [:]
    private var otherApps: VendorAccount?
    private var lanes: [LaneKey: VendorLane] = [:]
    /// Lanes of replaced credentials, until their requests have ended.
    private var retired: [VendorLane] = []

    /// The maximum number of push services of Web Push; each one has a lane.
    private static let laneLimit = 256

    private struct LaneKey: Hashable {
        var account: String
        var scope: String
    }

    init(
        _ accounts: [VendorAccount], settings: VendorSettings, register: JobRegister, through transport: VendorTransport
    ) {
        guard case .vendor(let vendor) = register.channel else { preconditionFailure("a register of Apple's channel") }
        (self.vendor, self.settings, self.register, self.transport) = (vendor, settings, register, transport)
        use(accounts)
        register.loop.onTick { [unowned self] now in
            // Removes idle failing lanes, so that a failed push service does not stay in states and metrics after its last
            // message.
            if register.failingCount > 0 {
                lanes = lanes.filter { $0.key.scope.isEmpty || $0.value.failsSince == nil || !$0.value.isIdle(now) }
            }
            for lane in lanes.values { lane.tick(now) }
            register.noteFailing(Array(lanes.values) + retired)
            retired.removeAll { $0.heldCount == 0 && !$0.token.isAwaited }
        }
    }

    var loop: EventLoop { register.loop }
    var allLanes: [VendorLane] { lanes.values.sorted { $0.name < $1.name } }

    private func use(_ accounts: [VendorAccount]) {
        (self.accounts, otherApps) = ([:], nil)
        for account in accounts {
            if account.apps.isEmpty, otherApps == nil { otherApps = account }
            for app in account.apps where self.accounts[app] == nil { self.accounts[app] = account }
        }
    }

    func begin(_ job: HandoffJob) {
        guard let job = job as? VendorJob else { preconditionFailure("a job of another channel") }
        guard let account = accounts[job.appID] ?? otherApps else {
            return register.giveBackWithoutCredential(job, "app \(job.appID), \(vendor.rawValue)")
        }
        guard let lane = lane(of: account, scope: account.api.tokenScope(of: job.message)) else {
            return register.giveBack(job, "tooManyServices", retryAfter: 60)
        }
        lane.add(job)
    }

    private func lane(of account: VendorAccount, scope: String) -> VendorLane? {
        let key = LaneKey(account: account.name, scope: scope)
        if let lane = lanes[key] { return lane }
        if lanes.count >= Self.laneLimit {
            lanes = lanes.filter { !$0.value.isIdle(loop.now) }
            guard lanes.count < Self.laneLimit || evictFailing() else { return nil }
        }
        let lane = VendorLane(account, scope: scope, settings: settings, of: self)
        lanes[key] = lane
        return lane
    }

    /// Removes a failing lane, so that endpoints that never answer cannot use up all lanes.
    ///
    /// Lanes without jobs are removed first, then those that have failed longest. Returns false if no lane fails.
    private func evictFailing() -> Bool {
        let failing = lanes.filter { $0.value.failsSince != nil && !$0.value.isResting(loop.now) }
        let victim = failing.min { one, other in
            let (left, right) = (one.value, other.value)
            if (left.heldCount == 0) != (right.heldCount == 0) { return left.heldCount == 0 }
            return left.failsSince ?? .max < right.failsSince ?? .max
        }
        guard let victim else { return false }
        lanes[victim.key] = nil
        retired.append(victim.value)
        victim.value.evict()
        return true
    }

    /// Applies new credentials: waiting jobs of changed ones move to new lanes, and requests in flight end on the old ones.
    func reload(_ accounts: [VendorAccount]) {
        use(accounts)
        var moved: [VendorJob] = []
        for (key, lane) in lanes {
            let new = accounts.first { $0.name == lane.account.name }
            if let new, new.digest == lane.account.digest, new.apps == lane.account.apps { continue }
            lanes[key] = nil
            retired.append(lane)
            moved += lane.retire()
        }
        for job in moved { begin(job) }
    }

    // MARK: Stop

    /// Returns jobs that are not in flight; requests in flight get their answer, or end with `abandon`.
    func beginStop() {
        register.stop()
        for lane in lanes.values { lane.giveBack("senderStops") }
    }

    /// Returns all jobs; the transport ends the unanswered requests.
    func abandon() { for lane in lanes.values { lane.giveBack("senderStops") } }

    /// Returns a URL's host and port; the path of a Web Push endpoint is confidential.
    static func host(of url: String) -> String {
        guard let start = url.firstRange(of: "://")?.upperBound else { return "" }
        return String(url[start...].prefix { $0 != "/" && $0 != "?" })
    }
}
