internal import EventLoops
internal import Platform

/// A thread for the system's resolver, which may block for seconds.
final class Resolver: Sendable {
    private struct Question: Sendable {
        var endpoint: Lane.Endpoint
        var answer: @Sendable (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void
    }
    private struct State {
        var questions: [Question] = []
        var isStopping = false
    }
    private let state = Monitor(State())
    private let thread = Lock<Thread?>(nil)

    init() throws(SystemError) {
        var started: Thread? = try Thread(named: "resolver") { [state] in
            while let question = Self.next(state) {
                do throws(RemoteAddress.Failure) {
                    question.answer(
                        .success(
                            try RemoteAddress.resolve(host: question.endpoint.host, port: question.endpoint.port)))
                } catch {
                    question.answer(.failure(error))
                }
            }
        }
        thread.withLock { swap(&$0, &started) }
    }

    private static func next(_ state: Monitor<State>) -> Question? {
        state.wait(
            while: { $0.questions.isEmpty && !$0.isStopping },
            then: { $0.isStopping ? nil : $0.questions.removeFirst() })
    }

    /// Resolves an endpoint; `done` is called on `loop`.
    func ask(
        _ endpoint: Lane.Endpoint, on loop: EventLoop,
        _ done: @escaping (Result<[RemoteAddress], RemoteAddress.Failure>) -> Void
    ) {
        let done = LoopBound(done, on: loop)
        let question = Question(endpoint: endpoint) { result in loop.submit { done.wrapped(result) } }
        state.signal { $0.questions.append(question) }
    }

    /// Ends the thread after the lookup in progress, whose time the system's resolver limits.
    func stop() {
        state.broadcast { $0.isStopping = true }
        var ended: Thread?
        thread.withLock { swap(&$0, &ended) }
        ended.take()?.join()
    }
}
