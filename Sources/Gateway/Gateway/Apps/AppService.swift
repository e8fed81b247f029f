internal import Delivery
internal import Platform
internal import PushAPI
internal import Wire

/// Carries out changes of apps on the partition that holds the apps' rows (table `meta`).
///
/// Changes run one at a time. Each is made durable, then applied, announced to the other gateways and answered.
final class AppService {
    private unowned let owner: Partition
    private var waiting: [(change: AppChange, origin: Origin)] = []
    private var isWriting = false

    /// The most queued changes; operators make them, so the queue is short.
    private static let waitingLimit = 64

    init(_ owner: Partition) { self.owner = owner }

    func take(_ change: AppChange, _ origin: Origin) {
        guard waiting.count < Self.waitingLimit, owner.store.acceptsWrites, owner.context.apps.isKnown else {
            return owner.replyBusy(to: origin)
        }
        waiting.append((change, origin))
        goOn()
    }

    private func goOn() {
        while !isWriting, let (change, origin) = waiting.first {
            let result = owner.context.apps.judge(change, owner.context.history, now: owner.now)
            guard case .done(let app, isNew: true, _) = result else {
                waiting.removeFirst()
                owner.reply(Optional(result), to: origin)
                continue
            }
            isWriting = true
            let isDeleted = change.act == .delete
            MetaRows.write(app, isDeleted: isDeleted, on: owner) { [self] in
                isWriting = false
                waiting.removeFirst()
                if isDeleted { forget(app.key) }
                owner.context.apps.put(app, isDeleted: isDeleted, on: owner.context, now: owner.now)
                owner.context.tellEveryGateway(.appsChanged(app.version))
                // `put` has already sent the new snapshot to every loop, so the answer arrives after it.
                owner.host.inNextTurn { $0.reply(Optional(result), to: origin) }
                goOn()
            } failed: { [self] in
                // It is unknown whether the row is durable. The next owner reads the row, and the caller retries.
                isWriting = false
                let all = waiting
                waiting = []
                for (_, origin) in all { owner.replyBusy(to: origin) }
            }
        }
    }
}

extension AppService {
    /// Removes a deleted app's test devices and revocation counts, which nothing else removes; its counters expire by age
    /// (`TaskMaintenance`).
    private func forget(_ app: AppKey) {
        for cid in owner.context.testDevices.removeAll(of: app) {
            MetaRows.write(.remove(cid), app: app, on: owner)
        }
        owner.context.usage.revocations.withLock { $0.forget(app) }
    }
}

// Replication of app changes from the owner of the rows.
extension EventLoopHost {
    /// Requests the app changes that this gateway lacks; calls `then` with `true` once they are applied, and with `false` if the
    /// owner did not answer.
    func followApps(then: @escaping (Bool) -> Void = { _ in }) {
        // The list of the rows' owner is complete. A queued answer of the owner to itself could be older than the list.
        guard servingPartition(0) == nil || !context.apps.isKnown else { return then(true) }
        let version = context.apps.version
        gatherApps([], base: version, since: version, of: context.apps.history, then: then)
    }

    /// Requests the changes piece by piece and applies all pieces together.
    ///
    /// If the answer belongs to another store history, it may lack changes that the store lost. All apps are requested again in
    /// this case.
    private func gatherApps(
        _ gathered: [ManagedApp], base: UInt64, since version: UInt64, of history: UInt64,
        then: @escaping (Bool) -> Void
    ) {
        ask(AppNewsRequest(since: version), of: Bucket(0)) { [self] answer in
            guard var news = answer else { return then(false) }
            guard news.since == 0 || news.history == history else {
                return gatherApps([], base: 0, since: 0, of: news.history, then: then)
            }
            let goesOn = news.since == version
            let changed = (goesOn ? gathered : []) + news.changed
            let base = goesOn ? base : news.since
            guard news.isLast else {
                guard let last = news.changed.last else { return then(false) }
                return gatherApps(changed, base: base, since: last.version, of: news.history, then: then)
            }
            (news.since, news.changed) = (base, changed)
            context.apps.take(news, on: context, now: now)
            // `take` has already queued the new snapshot on this loop, so `then` runs after it.
            inNextTurn { _ in then(true) }
        }
    }

    /// Requests changes after another gateway announced an unknown version.
    func followApps(upTo version: UInt64) {
        guard version != context.apps.version || !context.apps.isKnown else { return }
        followApps()
    }

    /// Returns the refusal for a Hello whose app is not served here.
    ///
    /// `isConfirmed` means that the owner of the apps' rows was asked after the Hello arrived.
    func refusal(ofApp appID: String, isConfirmed: Bool) -> Refusal {
        if registry.known(appID) != nil { return .appDisabled }
        guard registry.isComplete, isConfirmed else {
            return Refusal(.moved, "this gateway does not know all apps yet; reconnect")
        }
        return Refusal(.unknownApp, "no app of this id is configured here")
    }
}
