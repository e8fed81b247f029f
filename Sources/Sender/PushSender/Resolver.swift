internal import EventLoops
internal import Platform

extension EventLoop {
    /// Resolves an endpoint on a thread of `NameLookups`; `done` is called on this loop.
    func resolve(_ endpoint: Lane.Endpoint, _ done: @escaping (NameLookups.Outcome) -> Void) {
        let bound = LoopBound(done, on: self)
        NameLookups.shared.ask(host: endpoint.host, port: endpoint.port) { [self] outcome in
            submit { bound.wrapped(outcome) }
        }
    }
}
