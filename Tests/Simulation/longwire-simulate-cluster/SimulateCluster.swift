internal import ClusterSimulation
internal import Glibc

/// A large cluster in simulated time, with the gateways' own membership, placement and register.
///
///     longwire-simulate-cluster [GATEWAYS PARTS DEVICES [SEED]]
///
/// Prints the table of docs/use/Cluster.md. Exits with 1 if a partition was not served again or two gateways served one.
@main
enum SimulateCluster {
    static func main() {
        let numbers = CommandLine.arguments.dropFirst().map { Int($0) ?? 0 }
        guard numbers.count == 0 || numbers.count >= 3, numbers.allSatisfy({ $0 > 0 }) else {
            print("usage: longwire-simulate-cluster [GATEWAYS PARTS DEVICES [SEED]]")
            exit(64)
        }
        let (gateways, parts, devices) = numbers.isEmpty ? (256, 256, 1_000_000) : (numbers[0], numbers[1], numbers[2])
        var scale = ClusterScale(
            seed: UInt64(numbers.count > 3 ? numbers[3] : 1), gateways: gateways, parts: parts, devices: devices)
        let failure = scale.run()
        print(scale.table)
        if let failure {
            print("failed: \(failure)")
            exit(1)
        }
    }
}
