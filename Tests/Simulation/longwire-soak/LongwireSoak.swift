internal import Simulation

@main
enum LongwireSoak {
    static func main() {
        var first: UInt64 = 1
        var count: UInt64 = 10
        var events = 20_000
        var arguments = CommandLine.arguments.dropFirst().makeIterator()
        while let argument = arguments.next() {
            switch argument {
            case "--seed": first = UInt64(arguments.next() ?? "") ?? 1
            case "--seeds": count = UInt64(arguments.next() ?? "") ?? 1
            case "--events": events = Int(arguments.next() ?? "") ?? 1
            default: print("unknown \(argument)")
            }
        }
        var total = 0
        for seed in first..<first + count {
            let world = World(seed: seed)
            world.run(events: events)
            total += world.eventCount
            if let text = world.report { print(count == 1 ? text : String(text.prefix { $0 != "\n" })) }
        }
        print("\(total) events")
    }
}
