internal import HTTPClient
internal import JSON
internal import Platform
internal import Vendors

/// The thread that passes receipts on to the gateway, in batches and in order.
///
/// A batch is repeated until the gateway answers it, so the gateway may see a receipt twice. Receipts that the gateway could not
/// store are sent again later, without the others of their batch.
final class ReceiptRelay: Sendable {
    struct Entry: Sendable {
        var receipt: Receipt
        var appID: String?
        /// The number of times that the gateway could not store it.
        var storeFailures = 0
        /// The monotonic time of the next attempt, in milliseconds.
        var dueAt: UInt64 = 0
    }

    struct Figures: Sendable, Equatable {
        var waiting = 0
        var passedOn: UInt64 = 0
        var failures: UInt64 = 0
        /// The receipts that were dropped: malformed, not stored after all attempts, or still queued at shutdown.
        var dropped: UInt64 = 0
    }

    /// The maximum of waiting receipts, about 10 MB; vendors repeat receipts that are refused.
    static let limit = 20_000
    private static let batchCount = 500
    private static let pause: ClosedRange<Int> = 200...15_000
    /// The number of failed attempts to store a receipt after which the receipt is dropped.
    private static let storeFailureLimit = 20

    private struct State {
        var entries: [Entry] = []
        /// Receipts that the gateway could not store, until their next attempt.
        var delayed: [Entry] = []
        var isStopping = false
        var isAbandoned = false
        var figures = Figures()

        var count: Int { entries.count + delayed.count }

        /// Moves the due receipts from `delayed` to `entries`; at a stop, all of them.
        mutating func takeDue() {
            guard !delayed.isEmpty else { return }
            let now = isStopping ? .max : SystemClock.monotonicMilliseconds
            entries += delayed.filter { $0.dueAt <= now }
            delayed.removeAll { $0.dueAt <= now }
        }
    }

    private let url: String
    private let token: @Sendable () -> String
    private let log: SenderLog
    private let caller: HTTPCaller
    private let state = Monitor(State())
    private let thread = Lock<Thread?>(nil)

    init(_ link: GatewayLink.Settings, token: @escaping @Sendable () -> String, log: SenderLog) throws {
        (url, self.token, self.log) = (link.url + "/v1/handoff/receipts", token, log)
        caller = try HTTPCaller(link.trust)
    }

    func start() throws(SystemError) {
        var started: Thread? = try Thread(named: "receipts") { self.run() }
        thread.withLock { swap(&$0, &started) }
    }

    var figures: Figures {
        state.withLock { state in
            var figures = state.figures
            figures.waiting = state.count
            return figures
        }
    }

    /// Queues receipts; returns false without room for all of them.
    func take(_ entries: [Entry]) -> Bool {
        state.broadcast { state in
            guard !state.isStopping, state.count + entries.count <= Self.limit else { return false }
            state.entries += entries
            return true
        }
    }

    /// Ends the thread after it has passed on all receipts, or after `milliseconds`.
    func stop(milliseconds: UInt64) {
        state.broadcast { $0.isStopping = true }
        let isDone = state.wait(
            atMostMilliseconds: milliseconds, while: { $0.count > 0 && !$0.isAbandoned }, then: { $0.count == 0 })
        if !isDone {
            caller.cancel()
            state.broadcast { $0.isAbandoned = true }
        }
        var ended: Thread?
        thread.withLock { swap(&$0, &ended) }
        ended.take()?.join()
    }

    // MARK: Thread

    private func run() {
        var failures = 0
        var batchCount = Self.batchCount
        while let batch = nextBatch(batchCount) {
            switch pass(batch) {
            case .passed(let unstored):
                failures = 0
                batchCount = min(Self.batchCount, batchCount * 2)
                passed(batch.count, unstored: unstored)
            // Halving the batch isolates the malformed receipt, so that the others are not lost.
            case .malformed where batch.count > 1: batchCount = batch.count / 2
            case .malformed(let problem):
                log.write("receiptsDropped", "\(problem): 1 receipt is dropped")
                batchCount = 2
                state.broadcast { state in
                    state.entries.removeFirst()
                    state.figures.dropped += 1
                }
            case .failed(let problem):
                failures += 1
                state.withLock { $0.figures.failures += 1 }
                if failures <= 2 || failures & (failures - 1) == 0 {
                    log.write("gatewayFailed", "receipts: \(problem) (\(failures) in a row)")
                }
                let longest = min(Self.pause.upperBound, Self.pause.lowerBound << min(failures - 1, 10))
                let end = SystemClock.monotonicMilliseconds + UInt64(Int.random(in: longest / 2...longest))
                state.wait(
                    atMostMilliseconds: UInt64(longest),
                    while: { !$0.isAbandoned && SystemClock.monotonicMilliseconds < end }, then: { _ in })
            }
        }
        state.broadcast { state in
            state.figures.dropped += UInt64(state.count)
            (state.entries, state.delayed) = ([], [])
        }
    }

    /// Waits for receipts that are due; the result is `nil` at the end of the thread.
    private func nextBatch(_ count: Int) -> [Entry]? {
        while true {
            let milliseconds: UInt64 = state.withLock { state in
                state.takeDue()
                return state.delayed.isEmpty ? 60_000 : 100
            }
            let (batch, isOver) = state.wait(
                atMostMilliseconds: milliseconds, while: { $0.entries.isEmpty && !$0.isStopping },
                then: { state in
                    (
                        state.isAbandoned ? [] : Array(state.entries.prefix(count)),
                        state.isAbandoned || state.isStopping && state.count == 0
                    )
                })
            if !batch.isEmpty { return batch }
            if isOver { return nil }
        }
    }

    /// Removes a batch that the gateway answered, and queues those receipts again that it could not store.
    private func passed(_ count: Int, unstored: [Entry]) {
        let now = SystemClock.monotonicMilliseconds
        let again = unstored.compactMap { entry -> Entry? in
            var entry = entry
            entry.storeFailures += 1
            guard entry.storeFailures < Self.storeFailureLimit else { return nil }
            let pause = min(Self.pause.upperBound, Self.pause.lowerBound << min(entry.storeFailures - 1, 10))
            entry.dueAt = now + UInt64(pause)
            return entry
        }
        let lost = unstored.count - again.count
        if lost > 0 {
            log.write(
                "receiptsDropped",
                "the gateway could not store \(lost) receipts in \(Self.storeFailureLimit) attempts")
        }
        state.broadcast { state in
            state.entries.removeFirst(count)
            state.delayed += again
            state.figures.passedOn += UInt64(count - unstored.count)
            state.figures.dropped += UInt64(lost)
        }
    }

    private enum Passing {
        /// The gateway answered; it could not store some receipts.
        case passed(unstored: [Entry])
        case malformed(String)
        case failed(String)
    }

    private func pass(_ batch: [Entry]) -> Passing {
        let sent = batch.filter(Self.isAttributable)
        guard !sent.isEmpty else { return .passed(unstored: []) }
        do throws(HTTPCallFailure) {
            let reply = try caller.post(
                url,
                headers: [
                    (name: "Content-Type", value: "application/json"),
                    (name: "Authorization", value: "Bearer " + token()),
                ], body: Self.body(sent), timeoutMilliseconds: 15_000)
            let problem = "status \(reply.status) \(String(decoding: reply.body.prefix(200), as: UTF8.self))"
            switch reply.status {
            case 200...299: return .passed(unstored: Self.unstored(reply.body, of: sent))
            case 400, 413: return .malformed(problem)
            default: return .failed(problem)
            }
        } catch {
            return .failed(error.description)
        }
    }

    /// Whether the receipt has a message id and is not of kind `notShown`.
    ///
    /// Other receipts are not sent to the gateway.
    private static func isAttributable(_ entry: Entry) -> Bool {
        entry.receipt.kind != .notShown && entry.receipt.messageID != nil
    }

    /// Returns the receipts with the verdict `storeFailed`; the verdicts have the order of the receipts.
    private static func unstored(_ body: [UInt8], of sent: [Entry]) -> [Entry] {
        let parser = JSONParser()
        let verdicts: [String?] = body.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), let list = value["results"], list.kind == .array else {
                return []
            }
            return list.elements.map { $0["verdict"]?.string }
        }
        return zip(sent, verdicts).filter { $0.1 == "storeFailed" }.map(\.0)
    }

    private static func body(_ batch: [Entry]) -> [UInt8] {
        let receipts: [JSONObject] = batch.map { entry in
            let receipt = entry.receipt
            return [
                "channel": receipt.vendor.rawValue, "appId": entry.appID, "msgId": receipt.messageID,
                "token": receipt.token, "kind": "\(receipt.kind)", "at": receipt.at,
            ]
        }
        var writer = JSONWriter(capacity: 256 * batch.count)
        receipts.json(into: &writer)
        return writer.bytes
    }
}
