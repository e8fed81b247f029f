internal import Delivery
internal import Wire

/// The traces that the gateway told of.
struct TraceModel {
    private var told: [Int: MessageTrace?] = [:]

    mutating func take(_ trace: MessageTrace?, of record: Int) { told[record] = .some(trace) }

    subscript(record: Int) -> MessageTrace? { told[record] ?? nil }
}

// What the gateway answers when it is asked about messages.
extension Oracle {
    func traced(_ number: Int, _ trace: MessageTrace?) { traces.take(trace, of: number) }

    /// What the gateway tells of messages that ended is what was seen when they did.
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
