// Runs seeds of the simulation until the time limit and writes the coverage.
//
//   longwire-soak [--seed FIRST] [--seeds COUNT | --seconds N] [--events EACH] [--planted FAULT] [--server no]
//                 [--json FILE] [--digests yes]
//
// With --digests each seed's digest is printed. A change that keeps the behavior of all seeds keeps these lines. Only a debug
// build can plant a fault; the run then ends at the first seed that detects it.

internal import Delivery
internal import FoundationEssentials
internal import Glibc
internal import Simulation
internal import TextForms

@main
enum LongwireSoak {
    static func main() {
        var first: UInt64 = 1
        var count = UInt64.max
        var seconds = 60.0
        var events = 18_000
        var json: String?
        var planted: PlantedFault?
        var hasServer = true
        var printsDigests = false
        var arguments = ArgumentReader(CommandLine.arguments.dropFirst()) { $0 }
        do throws(ArgumentFault) {
            while let word = try arguments.next() {
                switch word {
                case .option("--seed"): first = try arguments.value(as: UInt64.self)
                case .option("--seeds"):
                    count = try arguments.value(as: UInt64.self)
                    seconds = .infinity
                case .option("--seconds"): seconds = try arguments.value(as: Double.self)
                case .option("--events"): events = try arguments.value(as: Int.self)
                case .option("--json"): json = try arguments.value()
                case .option("--server"): hasServer = try arguments.value() != "no"
                case .option("--digests"): printsDigests = try arguments.value() != "no"
                case .option("--planted"):
                    let name = try arguments.value()
                    planted = PlantedFault(rawValue: name)
                    if planted == nil { refuse("there is no fault \(name)") }
                case .option(let text), .operand(let text): refuse("there is no option \(text)")
                }
            }
        } catch { refuse(error.description) }
        run(
            first: first, count: count, seconds: seconds, events: events, json: json, planted: planted,
            hasServer: hasServer, printsDigests: printsDigests)
    }

    private static func refuse(_ text: String) -> Never {
        print("longwire-soak: \(text)")
        exit(64)
    }

    private static func run(
        first: UInt64, count: UInt64, seconds: Double, events: Int, json: String?, planted: PlantedFault?,
        hasServer: Bool, printsDigests: Bool
    ) {
        var summary = SoakSummary()
        let clock = ContinuousClock()
        let start = clock.now
        var seed = first
        while seed - first < count, clock.now - start < .seconds(min(seconds, 1e9)) {
            let world = World(seed: seed, hasServer: hasServer) { limits in
                #if DEBUG
                limits.planted = planted
                #endif
            }
            world.run(events: events)
            summary.add(world)
            if printsDigests { print("seed \(seed): \(world.eventCount) events, digest \(world.fingerprint)") }
            if let report = world.report { print(report) }
            if planted != nil, world.violation != nil { break }
            seed += 1
        }
        let elapsed = clock.now - start
        summary.seconds = Double(elapsed.components.seconds) + Double(elapsed.components.attoseconds) / 1e18
        print(summary.table)
        if let json {
            do { try Data(summary.json.utf8).write(to: URL(filePath: json)) } catch { refuse("\(error)") }
        }
        if !summary.failures.isEmpty { exit(1) }
    }
}
