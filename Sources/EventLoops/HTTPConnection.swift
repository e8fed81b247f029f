internal import CLibevent
internal import Glibc

/// What the server knows of one connection besides libevent: whether it lives, and since when a request is on its way.
///
/// evhttp tells neither of a new connection's end before its first request, nor does it bound the time of a request
/// whose bytes trickle in. So the server holds one more reference to each bufferevent and looks at it every tick:
/// libevent takes the callbacks off a bufferevent that it has given up.
final class HTTPConnection {
    let stream: OpaquePointer
    /// When the first byte of the request that is not complete yet came; 0 while there is none.
    var requestStartedAt: UInt64
    /// A body that evhttp does not read, since it belongs to a DELETE or the like.
    private var pendingBody: PendingBody?
    private let loop: EventLoop
    private var isTuned = false

    private struct PendingBody {
        let byteCount: Int
        let request: UnsafeMutablePointer<evhttp_request>
        let completed: (UnsafeMutablePointer<evhttp_request>) -> Void
        var read: bufferevent_data_cb?
        var write: bufferevent_data_cb?
        var event: bufferevent_event_cb?
        var context: UnsafeMutableRawPointer?
    }

    /// Watches `stream`; `startedAt` is 0 unless the connection must show a request soon.
    init(_ stream: OpaquePointer, loop: EventLoop, startedAt: UInt64) {
        (self.stream, self.loop, requestStartedAt) = (stream, loop, startedAt)
        bufferevent_incref(stream)
        evbuffer_add_cb(bufferevent_get_input(stream), noteInput, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Gives the reference back; the server lets go of this object right after.
    func forget() {
        evbuffer_remove_cb(bufferevent_get_input(stream), noteInput, Unmanaged.passUnretained(self).toOpaque())
        // A body that never came, on a connection that is gone: nobody else will free its request.
        if let body = pendingBody.take(), evhttp_request_get_connection(body.request) == nil {
            evhttp_request_free(body.request)
        }
        bufferevent_decref(stream)
    }

    /// Whether libevent still uses the connection.
    var isAlive: Bool {
        var event: bufferevent_event_cb?
        bufferevent_getcb(stream, nil, nil, &event, nil)
        return event != nil
    }

    /// Ends a connection whose request takes too long, as libevent's own timeout would.
    func timeOut() {
        requestStartedAt = 0
        bufferevent_trigger_event(stream, Int16(BEV_EVENT_TIMEOUT | BEV_EVENT_READING), 0)
    }

    func requestCompleted() {
        requestStartedAt = 0
        guard !isTuned else { return }
        isTuned = true
        var one: CInt = 1
        setsockopt(
            bufferevent_getfd(stream), CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
    }

    /// The start of a pipelined request may have come together with the one before.
    func requestAnswered() {
        if evbuffer_get_length(bufferevent_get_input(stream)) > 0 { requestStartedAt = loop.now }
    }

    fileprivate func inputGrew() {
        if requestStartedAt == 0 { requestStartedAt = loop.now }
    }

    // MARK: Bodies that evhttp leaves

    /// Waits for `byteCount` bytes behind the headers of `request`, puts them into it, then calls `completed`.
    ///
    /// evhttp takes it that a DELETE or GET has no body and would read one as the next request. Until the body is here
    /// the connection's callbacks are ours.
    func collectBody(
        _ byteCount: Int, of request: UnsafeMutablePointer<evhttp_request>,
        completed: @escaping (UnsafeMutablePointer<evhttp_request>) -> Void
    ) {
        var body = PendingBody(byteCount: byteCount, request: request, completed: completed)
        bufferevent_getcb(stream, &body.read, &body.write, &body.event, &body.context)
        pendingBody = body
        requestStartedAt = loop.now
        guard !bodyArrived() else { return }
        bufferevent_setcb(
            stream,
            { _, context in _ = HTTPConnection.from(context).bodyArrived() }, nil,
            { stream, what, context in HTTPConnection.from(context).bodyFailed(what) },
            Unmanaged.passUnretained(self).toOpaque())
        bufferevent_enable(stream, Int16(EV_READ))
    }

    private func bodyArrived() -> Bool {
        guard let body = pendingBody, let input = bufferevent_get_input(stream) else { return false }
        guard evbuffer_get_length(input) >= body.byteCount else { return false }
        pendingBody = nil
        bufferevent_disable(stream, Int16(EV_READ))
        bufferevent_setcb(stream, body.read, body.write, body.event, body.context)
        evbuffer_remove_buffer(input, evhttp_request_get_input_buffer(body.request), body.byteCount)
        body.completed(body.request)
        return true
    }

    private func bodyFailed(_ what: Int16) {
        guard let body = pendingBody.take() else { return }
        bufferevent_setcb(stream, body.read, body.write, body.event, body.context)
        // libevent takes the request off the connection, which it then frees: the request is left to us.
        bufferevent_trigger_event(stream, what, 0)
        if evhttp_request_get_connection(body.request) == nil { evhttp_request_free(body.request) }
    }

    fileprivate static func from(_ context: UnsafeMutableRawPointer?) -> HTTPConnection {
        guard let context else { preconditionFailure("libevent lost the context pointer") }
        return Unmanaged<HTTPConnection>.fromOpaque(context).takeUnretainedValue()
    }
}

private func noteInput(
    _: OpaquePointer?, change: UnsafePointer<evbuffer_cb_info>?, context: UnsafeMutableRawPointer?
) {
    guard let change, change.pointee.n_added > 0 else { return }
    HTTPConnection.from(context).inputGrew()
}
