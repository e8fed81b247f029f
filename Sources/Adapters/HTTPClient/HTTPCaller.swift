internal import Synchronization

/// A blocking HTTP client for one call at a time; only one thread may call `post`, any thread may call `cancel` and `end`.
package final class HTTPCaller: Sendable {
    /// The number of 10 ms steps for which `end` waits for an answer in flight.
    private static let endingStepCount = 50

    private let transfers: HTTPTransfers
    private let trust: HTTPTrust
    private let isCancelled = Atomic<Bool>(false)
    private let isEnding = Atomic<Bool>(false)

    package init(_ trust: HTTPTrust = HTTPTrust()) throws(HTTPCallFailure) {
        guard let transfers = HTTPTransfers() else { throw .noMemory }
        (self.transfers, self.trust) = (transfers, trust)
    }

    /// Cancels the current call and every later one.
    package func cancel() {
        isCancelled.store(true, ordering: .releasing)
        transfers.wake()
    }

    /// Ends the current call but accepts an answer already in flight; every later call is refused.
    package func end() {
        isEnding.store(true, ordering: .releasing)
        transfers.wake()
    }

    package func post(
        _ url: String, headers: [(name: String, value: String)], body: [UInt8], timeoutMilliseconds: Int
    ) throws(HTTPCallFailure) -> HTTPReply {
        guard !isCancelled.load(ordering: .acquiring), !isEnding.load(ordering: .acquiring) else {
            throw .cancelled
        }
        var call = HTTPCall(
            url, headers: headers, body: body, userAgent: "longwire-sender", timeoutMilliseconds: timeoutMilliseconds)
        call.trust = trust
        guard let transfer = HTTPTransfer(call, in: transfers) else { throw .noMemory }
        defer { transfer.leave() }
        var endingSteps = 0
        while true {
            transfers.perform()
            if let ended = transfers.nextEnded() { return try ended.result.get() }
            if isCancelled.load(ordering: .acquiring) { throw .cancelled }
            if isEnding.load(ordering: .acquiring) {
                if endingSteps == 0 { transfer.closeOurHalf() }
                guard endingSteps < Self.endingStepCount else { throw .cancelled }
                endingSteps += 1
            }
            transfers.wait(milliseconds: endingSteps > 0 ? 10 : 1_000)
        }
    }
}
