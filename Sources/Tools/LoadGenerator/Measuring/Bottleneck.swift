/// The cause that limited a run's rate or delayed a paced run.
///
/// A report names it, because figures limited by the generator or by too few cores do not describe the gateway.
enum Bottleneck: String, Sendable {
    /// A generator thread used its whole core, or sent late although the gateway accepted messages.
    case generator
    /// Nearly all cores of this machine were in use, whichever process used them.
    case machine
    case server
    case none

    struct Facts: Equatable {
        /// The busiest generator thread's share of a core, 0 to 1.
        var busiest = 0.0
        var generatorCores = 0.0
        /// The gateway's CPU in cores, or `nil` if its process is unknown.
        var serverCores: Double?
        /// The CPU of all processes on this machine in cores, or `nil` if unknown.
        var usedCores: Double?
        var machineCores = 1.0
        var isPaced = false
        /// The 99th percentile of the delay between due time and encoding.
        var sendLag: Int64 = 0
        /// The number of times that the gateway accepted no more.
        var stalls = 0
        /// The share of time that the least idle thread waited for events.
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

    /// The longest send lag that counts as normal: four ticks.
    static let lateNanoseconds: Int64 = 4 * Limits.tickNanoseconds

    /// Returns a warning for the report, or `nil`.
    func note(_ facts: Facts) -> String? {
        let percent = Metric.rounded(facts.busiest * 100, 0)
        switch self {
        case .generator where facts.busiest >= 0.9:
            return "The generator itself was the bottleneck (a thread used \(percent) % of a core): give --threads, "
                + "or more cores. The gateway can do more than these figures."
        case .generator:
            return "The generator itself sent late (1 % of the messages more than "
                + "\(Metric("sendLag.p99", Double(facts.sendLag), "").text) behind their time) though the gateway took "
                + "all: these latencies are partly the generator's. Give it a separate core."
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
