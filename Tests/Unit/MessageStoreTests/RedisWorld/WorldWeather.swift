import Redis
import SimulatedRedis

@testable import MessageStore

/// The severity of the faults.
enum WorldWeather: CaseIterable, Sendable {
    case fair
    /// Writes are delayed until their senders have timed out, slots of groups move often, replicas die.
    case rough
    /// Each seed repeats one kind of fault.
    case foul

    enum Focus: UInt64, CaseIterable, Sendable {
        /// Batches of rows are delayed, sent again, and arrive after later ones.
        case copies
        /// Fences are delayed, sent again, and arrive when their owner starts to write.
        case fences
        /// Replies to entries are lost together with primaries; replicas have only the entries that a WAIT covered.
        case losses
        /// A replica has lost its primary, and another one is waited for instead.
        case laggards

        static func of(_ seed: UInt64) -> Self { Self(rawValue: seed % 4) ?? .copies }

        /// Whether all faults of fair weather happen, too.
        var isOfAllKinds: Bool { self == .copies || self == .fences }

        func arrange(_ layout: inout SimulatedCluster.Layout) {
            switch self {
            case .copies, .fences: break
            case .losses:
                // Before 7.2 a WAIT also covers other clients' writes.
                layout.waitsForWritesOnly = true
                layout.isCluster = true
            case .laggards:
                // A server without cluster mode lists only its connected replicas.
                (layout.isCluster, layout.replicas) = (false, 2)
            }
        }

        /// `nil` uses the rates of fair weather.
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

        /// Returns the probability that a call is delayed.
        func heldShare(_ commands: [RedisCommand]) -> Double {
            switch self {
            case .copies: commands.contains { WorldFault.isCall($0, of: RedisScripts.batch) } ? 0.15 : 0
            case .fences: commands.contains { WorldFault.isCall($0, of: PartOpening.fenceScript) } ? 0.4 : 0
            case .losses, .laggards: 0
            }
        }
    }
}
