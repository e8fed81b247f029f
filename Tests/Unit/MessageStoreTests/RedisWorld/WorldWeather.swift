import Redis
import SimulatedRedis

@testable import MessageStore

/// How bad the world is to its processes.
enum WorldWeather: CaseIterable, Sendable {
    case fair
    /// Writes are held on their way until their senders have given up, slots of groups move often, replicas die.
    case rough
    /// Each seed looks for one kind of trouble, again and again.
    case foul

    enum Focus: UInt64, CaseIterable, Sendable {
        /// Batches of rows are held, sent again, and arrive behind later ones.
        case copies
        /// Fences are held, sent again, and arrive when their owner begins to write.
        case fences
        /// Replies to entries are lost, and primaries with them; replicas have what was waited for and nothing else.
        case losses
        /// A replica has lost its primary; another one is waited for in its place.
        case laggards

        static func of(_ seed: UInt64) -> Self { Self(rawValue: seed % 4) ?? .copies }

        /// All that happens in fair weather happens here, too.
        var isOfAllKinds: Bool { self == .copies || self == .fences }

        func arrange(_ layout: inout SimulatedCluster.Layout) {
            switch self {
            case .copies, .fences: break
            case .losses:
                // Before 7.2 a wait waits for what others wrote, too.
                layout.waitsForWritesOnly = true
                layout.isCluster = true
            case .laggards:
                // A server without cluster mode names the replicas that are linked to it, and no others.
                (layout.isCluster, layout.replicas) = (false, 2)
            }
        }

        /// `nil`: as in fair weather.
        var rates: FaultRates? {
            switch self {
            case .copies, .fences: return nil
            case .losses:
                var rates = FaultRates.none
                (rates.replyLost, rates.eagerReplica) = (0.1, 0)
                return rates
            case .laggards: return FaultRates.none
            }
        }

        /// How often a call is held.
        func heldShare(_ commands: [RedisCommand]) -> Double {
            switch self {
            case .copies: commands.contains { WorldFault.isCall($0, of: RedisScripts.batch) } ? 0.15 : 0
            case .fences: commands.contains { WorldFault.isCall($0, of: PartOpening.fenceScript) } ? 0.4 : 0
            case .losses, .laggards: 0
            }
        }
    }
}
