/// Messages that overflowed in flight; their session must end before the end of the call.
struct OverflowModel {
    private var inFlight: [(message: Int, link: Int)] = []

    mutating func note(message: Int, link: Int) { inFlight.append((message, link)) }

    mutating func takeAll() -> [(message: Int, link: Int)] {
        defer { inFlight.removeAll(keepingCapacity: true) }
        return inFlight
    }
}
