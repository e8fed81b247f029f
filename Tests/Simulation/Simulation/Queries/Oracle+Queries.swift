internal import Delivery
internal import Wire

struct TraceModel {
    private var told: [Int: MessageTrace?] = [:]

    mutating func take(_ trace: MessageTrace?, of record: Int) { told[record] = .some(trace) }

    subscript(record: Int) -> MessageTrace? { told[record] ?? nil }
}

// Checks of the gateway's answers about messages.
extension Oracle {
    func traced(_ number: Int, _ trace: MessageTrace?) { traces.take(trace, of: number) }

    /// Checks that the traces of finished messages match the observed final states.
    func checkTraces() {
        let ended = world.records.filter { $0.durableFinal != nil }
        guard !requests.areForgotten, !ended.isEmpty else { return }
        for record in ended.suffix(200) {
            let loop = world.loop(of: record.identity.bucket)
            loop.shard.trace(of: record.id, origin: .init(route: 5, request: UInt64(record.index)), now: now)
            loop.perform()
        }
        world.pass(milliseconds: 20_000)
        for record in ended.suffix(200) {
            guard let trace = traces[record.index] else {
                return fail(.progress, "the trace of message \(record.index) was not told")
            }
            if trace.finalState != record.durableFinal {
                return fail(
                    .finalState, "the trace of message \(record.index) says \(String(describing: trace.finalState))")
            }
        }
    }
}
