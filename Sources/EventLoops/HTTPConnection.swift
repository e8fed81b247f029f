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
    private let loop: EventLoop
    private var isTuned = false

    /// Watches `stream`; `startedAt` is 0 unless the connection must show a request soon.
    init(_ stream: OpaquePointer, loop: EventLoop, startedAt: UInt64) {
        (self.stream, self.loop, requestStartedAt) = (stream, loop, startedAt)
        bufferevent_incref(stream)
        evbuffer_add_cb(bufferevent_get_input(stream), noteInput, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Gives the reference back; the server lets go of this object right after.
    func forget() {
        evbuffer_remove_cb(bufferevent_get_input(stream), noteInput, Unmanaged.passUnretained(self).toOpaque())
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
