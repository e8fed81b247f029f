internal import EventLoops
internal import HTTPClient
internal import Platform

/// Requests to vendors, submitted and answered on the sender's loop.
///
/// `HTTP2Pool` sends HTTP/2 requests on the loop. A thread performs the others with libcurl's connection pool.
final class VendorTransport {
    typealias Answer = Result<HTTPClient.HTTPReply, HTTPCallFailure>

    /// The bound of libcurl's pool; each lane has its own bound of concurrent requests.
    static let connectionLimit = 1_024
    /// The number of concurrent requests on one HTTP/2 connection; servers of FCM and Mozilla allow 100.
    static let streamLimit = 100

    private struct Request: Sendable {
        var number: UInt64
        var call: HTTPCall
    }
    private struct State: Sendable {
        var requests: [Request] = []
        var isAbandoned = false
        var isStopping = false
    }

    private let loop: EventLoop
    private let state = Lock(State())
    private let transfers: HTTPTransfers
    private let thread = Lock<Thread?>(nil)
    private var pending: [UInt64: (Answer) -> Void] = [:]
    private var lastNumber: UInt64 = 0
    private var pool: HTTP2Pool?

    /// Creates a transport; must be called on the loop, or before the loop runs.
    ///
    /// `connectionsPerHost` is 0 without a bound. Without a `resolver` all requests go over libcurl.
    init(on loop: EventLoop, connectionsPerHost: Int, resolver: HTTP2Pool.Resolve? = nil) throws {
        self.loop = loop
        var bounds = HTTPTransfers.Bounds()
        (bounds.connections, bounds.connectionsPerHost) = (Self.connectionLimit, connectionsPerHost)
        bounds.streams = Self.streamLimit
        guard let transfers = HTTPTransfers(bounds) else {
            throw HTTPCallFailure.noMemory
        }
        self.transfers = transfers
        let deliver = LoopBound(self, on: loop)
        let state = state
        var started: Thread? = try Thread(named: "vendors") {
            Self.run(transfers, state) { answers in loop.submit { deliver.wrapped.deliver(answers) } }
        }
        thread.withLock { swap(&$0, &started) }
        guard let resolver else { return }
        var limits = HTTP2Pool.Limits()
        limits.connections = connectionsPerHost
        pool = HTTP2Pool(on: loop, limits: limits, resolver: resolver) { [unowned self] in submitToThread($0, $1) }
    }

    var pendingCount: Int { pending.count }

    /// Starts a request; `done` is called on the loop.
    func submit(_ call: HTTPCall, _ done: @escaping (Answer) -> Void) {
        if pool?.submit(call, done) != true { submitToThread(call, done) }
    }

    private func submitToThread(_ call: HTTPCall, _ done: @escaping (Answer) -> Void) {
        lastNumber += 1
        pending[lastNumber] = done
        let request = Request(number: lastNumber, call: call)
        let isFirst = state.withLock { state in
            state.requests.append(request)
            return state.requests.count == 1
        }
        // The thread takes all queued requests at once, so only the first of them wakes it.
        if isFirst { transfers.wake() }
    }

    private func deliver(_ answers: [(number: UInt64, answer: Answer)]) {
        for (number, answer) in answers { pending.removeValue(forKey: number)?(answer) }
    }

    /// Ends all requests with a failure that states whether the request was sent.
    func abandon() {
        pool?.abandon()
        state.withLock { $0.isAbandoned = true }
        transfers.wake()
    }

    /// A function that ends the thread and waits for it; call it on another thread than the loop's.
    var stop: @Sendable () -> Void {
        let (state, transfers, thread) = (state, transfers, thread)
        return {
            state.withLock { $0.isStopping = true }
            transfers.wake()
            var ended: Thread?
            thread.withLock { swap(&$0, &ended) }
            ended.take()?.join()
        }
    }

    // MARK: Thread

    private static func run(
        _ transfers: HTTPTransfers, _ state: Lock<State>,
        _ deliver: ([(number: UInt64, answer: Answer)]) -> Void
    ) {
        var underWay: [ObjectIdentifier: (number: UInt64, transfer: HTTPTransfer)] = [:]
        while true {
            var answers: [(number: UInt64, answer: Answer)] = []
            var requests: [Request] = []
            let (isStopping, isAbandoned) = state.withLock { state in
                swap(&requests, &state.requests)
                return (state.isStopping, state.isAbandoned)
            }
            if isStopping { break }
            if isAbandoned {
                for (number, transfer) in underWay.values {
                    answers.append((number, .failure(transfer.hasBegun ? .cancelled : .cancelledUnsent)))
                    transfer.leave()
                }
                underWay = [:]
                answers += requests.map { ($0.number, .failure(.cancelledUnsent)) }
                requests = []
            }
            for request in requests {
                if let transfer = HTTPTransfer(request.call, in: transfers) {
                    underWay[ObjectIdentifier(transfer)] = (request.number, transfer)
                } else {
                    answers.append((request.number, .failure(.noMemory)))
                }
            }
            transfers.perform()
            while let (transfer, result) = transfers.nextEnded() {
                guard let ended = underWay.removeValue(forKey: ObjectIdentifier(transfer)) else { continue }
                answers.append((ended.number, result))
            }
            if !answers.isEmpty { deliver(answers) }
            transfers.wait(milliseconds: 1_000)
        }
        for (_, transfer) in underWay.values { transfer.leave() }
    }
}
