/// What kept a run from being faster, or a paced one from being on time.
///
/// The reader of a figure must know whose it is: a generator out of breath, or one that shares too few cores, says
/// nothing about the gateway.
enum Bottleneck: String, Sendable {
    /// A generator's thread had no time left, or sent late although the gateway would have taken it.
    case generator
    /// Nearly all cores of this machine were in use, by the gateway, the generator or others.
    case machine
    /// The generator waited for the gateway.
    case server
    /// A paced run kept its pace.
    case none

    struct Facts: Equatable {
        /// The busiest generator thread's share of a core, 0 to 1.
        var busiest = 0.0
        var generatorCores = 0.0
        /// `nil` when the gateway's process is not known.
        var serverCores: Double?
        /// What everything on this machine used, others included; `nil` when it is not known.
        var usedCores: Double?
        var machineCores = 1.0
        var isPaced = false
        /// 99 % of paced messages were encoded at most so late.
        var sendLag: Int64 = 0
        /// Times at which the gateway took no more.
        var stalls = 0
        /// The share of time that the least idle thread waited for something to do.
        var waited = 1.0
        var isPaceKept = true

        var allCores: Double? {
            let known = [usedCores, serverCores.map { $0 + generatorCores }].compactMap(\.self)
            return known.max()
        }
    }

    init(_ facts: Facts) {
        if facts.busiest >= 0.9 {
            self = .generator
        } else if facts.isPaced, facts.isPaceKept, facts.sendLag <= Self.lateNanoseconds {
            self = .none
        } else if let used = facts.allCores, used >= facts.machineCores * 0.93 {
            self = .machine
        } else if facts.isPaced, facts.stalls == 0, facts.sendLag > Self.lateNanoseconds {
            self = .generator
        } else if facts.serverCores == nil, !facts.isPaced, facts.waited < 0.02 {
            self = .machine
        } else {
            self = .server
        }
    }

    /// Four ticks of the pace: later than that is no longer the tick.
    static let lateNanoseconds: Int64 = 4 * Limits.tickNanoseconds

    /// What the reader must not miss; `nil` when there is nothing to warn of.
    func note(_ facts: Facts) -> String? {
        let percent = Metric.rounded(facts.busiest * 100, 0)
        switch self {
        case .generator where facts.busiest >= 0.9:
            return "The generator itself was the bottleneck (a thread used \(percent) % of a core): give --threads, "
                + "or more cores. The gateway can do more than these figures."
        case .generator:
            return "The generator itself sent late (1 % of the messages more than "
                + "\(Metric("sendLag.p99", Double(facts.sendLag), "").text) behind their time) though the gateway took "
                + "all: these latencies are partly the generator's. Give it a core of its own."
        case .machine:
            let cores = Metric.rounded(facts.generatorCores, 2)
            let server = facts.serverCores.map { ", the gateway \(Metric.rounded($0, 2))" } ?? ""
            let all = facts.usedCores.map { ", everything together \(Metric.rounded($0, 2))" } ?? ""
            return "The cores of this machine were the limit (the generator used \(cores)\(server)\(all) of "
                + "\(Metric.rounded(facts.machineCores, 0))): the gateway can do more where it has them to itself."
        case .server, .none: return nil
        }
    }
}
