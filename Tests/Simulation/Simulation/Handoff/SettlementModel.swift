internal import Delivery

/// Reported results whose verdicts are pending.
struct SettlementModel {
    private var open: [Int: [JobResult]] = [:]
    private var count = 0

    /// - Returns: the number under which the verdicts arrive.
    mutating func begin(_ results: [JobResult]) -> Int {
        count += 1
        open[count] = results
        return count
    }

    mutating func end(_ number: Int) -> [JobResult]? { open.removeValue(forKey: number) }

    mutating func processDied() { open = [:] }
}
