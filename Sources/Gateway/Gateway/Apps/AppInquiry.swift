internal import EventLoops
internal import PushAPI
internal import Wire

/// The lookups of unknown apps, from one loop, at the gateway that owns the apps' rows.
///
/// In a cluster, another gateway may have just created the app. An unknown app is therefore refused only after a lookup that
/// began after the request. One lookup serves all requests that arrived before it, and only one runs at a time.
final class AppInquiry {
    private unowned let owner: EventLoopHost
    private var waiting: [(Bool) -> Void] = []
    private var isAsking = false
    private var nextAt: UInt64 = 0

    /// The shortest interval between two lookups, in milliseconds; any client can name unknown apps.
    private static let pauseMilliseconds: Int64 = 20
    /// The most requests that wait for one lookup; the connection limit bounds them, too.
    private static let waitingLimit = 16_384

    init(_ owner: EventLoopHost) { self.owner = owner }

    /// Calls `then` in a later turn: with `true` once all apps created before the call are known here, with `false` if the lookup
    /// failed.
    func confirm(then: @escaping (Bool) -> Void) {
        guard owner.context.cluster != nil else { return owner.inNextTurn { _ in then(true) } }
        // A gateway that has not received all apps yet is already requesting them, so no lookup is needed.
        guard owner.registry.isComplete, waiting.count < Self.waitingLimit else {
            return owner.inNextTurn { _ in then(false) }
        }
        waiting.append(then)
        ask()
    }

    private func ask() {
        guard !isAsking, !waiting.isEmpty else { return }
        isAsking = true
        let now = owner.loop.now
        guard nextAt <= now else {
            return owner.campaigns.coordinator.later(Int64(nextAt - now)) { [self] in
                isAsking = false
                nextAt = 0
                ask()
            }
        }
        nextAt = now + UInt64(Self.pauseMilliseconds)
        let asked = waiting
        waiting = []
        owner.inNextTurn { member in
            member.followApps { isKnown in
                for then in asked { then(isKnown) }
                member.appInquiry.answered()
            }
        }
    }

    private func answered() {
        isAsking = false
        ask()
    }
}

/// The state of the lookup for an unknown app that a Hello names.
enum AppQuestion {
    case none
    case asked
    /// The lookup succeeded, so all apps created before it are known.
    case confirmed
    case unanswered
}
