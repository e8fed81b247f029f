internal import EventLoops
internal import PushAPI
internal import Wire

/// Questions of one loop about apps that are not listed here: whether the owner of the apps' rows has them.
///
/// In a cluster another gateway may have made the app a moment ago, so "there is no such app" is known only after a question
/// that was asked behind the request. One question serves all requests that came before it, and there is one at a time.
final class AppInquiry {
    private unowned let owner: EventLoopHost
    private var waiting: [(Bool) -> Void] = []
    private var isAsking = false
    private var nextAt: UInt64 = 0

    /// The least time between two questions: anyone may name apps that are not there.
    private static let pauseMilliseconds: Int64 = 20
    /// Requests that wait for one question; connections bound them as well.
    private static let waitingLimit = 16_384

    init(_ owner: EventLoopHost) { self.owner = owner }

    /// Calls `then` in a later turn, when all apps that were made before are listed here; with false when that is not known.
    func confirm(then: @escaping (Bool) -> Void) {
        guard owner.context.cluster != nil else { return owner.inNextTurn { _ in then(true) } }
        // A gateway that starts asks for all apps by itself.
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

/// How far a connection is whose Hello names an app that is not listed.
enum AppQuestion {
    case none
    case asked
    /// Every app is listed that was made before the question.
    case confirmed
    /// That could not be found out.
    case unanswered
}
