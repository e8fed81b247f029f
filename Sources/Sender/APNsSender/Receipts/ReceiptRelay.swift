internal import HTTPClient
internal import JSON
internal import Platform
internal import Vendors

/// The thread that passes receipts on to the gateway, in batches and in order.
///
/// A batch is repeated until the gateway takes it, so the gateway may see a receipt twice.
final class ReceiptRelay: Sendable {
    /// A receipt and the time of its arrival in Unix milliseconds.
    struct Entry: Sendable {
        var receipt: Receipt
        var appID: String?
        var at: Int64
    }

    struct Figures: Sendable, Equatable {
        var waiting = 0
        var passedOn: UInt64 = 0
        var failures: UInt64 = 0
        /// Receipts that the gateway called malformed, or that the end of the process left.
        var dropped: UInt64 = 0
    }

    /// The maximum of waiting receipts, about 10 MB; vendors repeat receipts that are refused.
    static let limit = 20_000
    private static let batchCount = 500
    private static let pause: ClosedRange<Int> = 200...15_000

    private struct State {
        var entries: [Entry] = []
        var isStopping = false
        var isAbandoned = false
        var figures = Figures()
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
            figures.waiting = state.entries.count
            return figures
        }
    }

    /// Queues receipts; returns false without room for all of them.
    func take(_ entries: [Entry]) -> Bool {
        state.broadcast { state in
            guard !state.isStopping, state.entries.count + entries.count <= Self.limit else { return false }
            state.entries += entries
            return true
        }
    }

    /// Ends the thread after it has passed on all receipts, or after `milliseconds`.
    func stop(milliseconds: UInt64) {
        state.broadcast { $0.isStopping = true }
        let isDone = state.wait(
            atMostMilliseconds: milliseconds, while: { !$0.entries.isEmpty && !$0.isAbandoned },
            then: { $0.entries.isEmpty })
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
        while true {
            let batch = state.wait(
                while: { $0.entries.isEmpty && !$0.isStopping },
                then: { $0.isAbandoned ? [] : Array($0.entries.prefix(Self.batchCount)) })
            guard !batch.isEmpty else { break }
            switch pass(batch) {
            case .passed:
                failures = 0
                state.broadcast { state in
                    state.entries.removeFirst(batch.count)
                    state.figures.passedOn += UInt64(batch.count)
                }
            case .malformed(let problem):
                log.write("receiptsDropped", "\(problem): \(batch.count) receipts are dropped")
                state.broadcast { state in
                    state.entries.removeFirst(batch.count)
                    state.figures.dropped += UInt64(batch.count)
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
            state.figures.dropped += UInt64(state.entries.count)
            state.entries = []
        }
    }

    private enum Passing {
        case passed
        case malformed(String)
        case failed(String)
    }

    private func pass(_ batch: [Entry]) -> Passing {
        let body = Self.body(batch)
        guard !body.isEmpty else { return .passed }
        do throws(HTTPCallFailure) {
            let reply = try caller.post(
                url,
                headers: [
                    (name: "Content-Type", value: "application/json"),
                    (name: "Authorization", value: "Bearer " + token()),
                ], body: body, timeoutMilliseconds: 15_000)
            let problem = "status \(reply.status) \(String(decoding: reply.body.prefix(200), as: UTF8.self))"
            switch reply.status {
            case 200...299:
                // A repeated receipt changes nothing, so the whole batch is sent again.
                let isUnstored = String(decoding: reply.body, as: UTF8.self).contains("\"storeFailed\"")
                return isUnstored ? .failed("the gateway could not store all of them") : .passed
            case 400, 413: return .malformed(problem)
            default: return .failed(problem)
            }
        } catch {
            return .failed(error.description)
        }
    }

    /// Returns the receipts that the gateway can attribute to a message and that say more than that nothing was shown.
    static func body(_ batch: [Entry]) -> [UInt8] {
        let receipts: [JSONObject] = batch.compactMap { entry in
            let receipt = entry.receipt
            guard receipt.kind != .notShown, let message = receipt.messageID else { return nil }
            return [
                "channel": receipt.vendor.rawValue, "appId": entry.appID, "msgId": message, "token": receipt.token,
                "kind": "\(receipt.kind)", "at": entry.at,
            ]
        }
        guard !receipts.isEmpty else { return [] }
        var writer = JSONWriter(capacity: 256 * batch.count)
        receipts.json(into: &writer)
        return writer.bytes
    }
}
