internal import Delivery
internal import Platform
internal import PushAPI
internal import Wire

/// Carries out changes of apps, on the partition of the gateway's own rows: one after another, each durable before it is
/// in force, told to the other gateways and answered.
final class AppService {
    private unowned let owner: Partition
    private var waiting: [(change: AppChange, origin: Origin)] = []
    private var isWriting = false

    /// Calls that wait for the one before them; people make them.
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
                // Behind the new snapshot in every loop's queue, the asking one's included.
                owner.host.inNextTurn { $0.reply(Optional(result), to: origin) }
                goOn()
            } failed: { [self] in
                // Whether the row is durable is not known: the next owner reads it, and the caller asks again.
                isWriting = false
                let all = waiting
                waiting = []
                for (_, origin) in all { owner.replyBusy(to: origin) }
            }
        }
    }
}

extension AppService {
    /// Removes what only the deleted app's calls would remove; counts of its past end by their age (`TaskMaintenance`).
    private func forget(_ app: AppKey) {
        for cid in owner.context.testDevices.removeAll(of: app) {
            MetaRows.write(.remove(cid), app: app, on: owner)
        }
        owner.context.usage.revocations.withLock { $0.forget(app) }
    }
}

// Following the owner of the rows.
extension EventLoopHost {
    /// Asks for the changes of apps that this gateway does not have.
    ///
    /// `then` runs with true when they are in force, and with false when they cannot be had now.
    func followApps(then: @escaping (Bool) -> Void = { _ in }) {
        // The owner has the book itself; an answer that it gave itself could be older than what it did meanwhile.
        guard servingPartition(0) == nil || !context.apps.isKnown else { return then(true) }
        let version = context.apps.version
        gatherApps([], base: version, since: version, of: context.apps.history, then: then)
    }

    /// Asks piece by piece and puts all pieces in force together.
    ///
    /// News of another history than the version asked for may leave out what the store lost: everything is asked for then.
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
            // Behind the new snapshot in this loop's queue.
            inNextTurn { _ in then(true) }
        }
    }

    /// The same where another gateway has told of a version that is not known here.
    func followApps(upTo version: UInt64) {
        guard version != context.apps.version || !context.apps.isKnown else { return }
        followApps()
    }

    /// Why a Hello whose app is not served here is refused.
    ///
    /// `isConfirmed`: the owner of the apps' rows was asked behind the Hello.
    func refusal(ofApp appID: String, isConfirmed: Bool) -> Refusal {
        if registry.known(appID) != nil { return .appDisabled }
        guard registry.isComplete, isConfirmed else {
            return Refusal(.moved, "this gateway does not know all apps yet; come back")
        }
        return Refusal(.unknownApp, "no app of this id is configured here")
    }
}
