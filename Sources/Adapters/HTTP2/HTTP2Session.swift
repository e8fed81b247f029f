// A wrapper of nghttp2 that converts bytes to frames and back. `HTTP2Connection` binds it to a byte stream.

internal import CNghttp2

/// A fatal error of a connection; the text is for the log.
package struct HTTP2Failure: Error, Equatable, CustomStringConvertible {
    package let description: String
}

open class HTTP2Observer {
    public init() {}

    open func settingsChanged() {}

    /// Reports that the peer accepts no more streams.
    ///
    /// The peer may still answer streams up to `lastStream` and has not processed later ones. A session closes the later streams
    /// with `HTTP2Code.refusedStream` before this call.
    open func goneAway(lastStream: Int32, code: UInt32, debug: [UInt8]) {}

    open func pongReceived() {}

    /// Returns a stream for a new client request on the server side, or `nil` to refuse it.
    open func opened() -> HTTP2Stream? { nil }
}

package final class HTTP2Session {
    package enum Side: Sendable { case client, server }

    package struct Settings: Sendable {
        package var concurrentStreams: UInt32 = 1_000
        /// The flow-control window of a stream in bytes.
        package var window: UInt32 = 64 << 10
        package var headerTableByteCount: UInt32 = 4_096
        /// The maximum size of a stream's header fields in bytes; a stream that exceeds it is reset.
        package var headerByteLimit = 16 << 10

        package init() {}
    }

    private let side: Side
    private let settings: Settings
    private let raw: OpaquePointer
    private unowned let observer: HTTP2Observer
    private var streams: [Int32: HTTP2Stream] = [:]
    /// A client's received bytes until the type of the peer's first frame is known.
    private var firstBytes: [UInt8] = []
    private var hasFirstFrame: Bool
    /// Whether the peer sent GOAWAY instead of its settings; further input is ignored.
    private var isRefused = false
    /// Whether the streams were ended, after which nghttp2 must not read the bodies it may still point to.
    private var isOver = false

    /// Creates the state and queues the preface; the observer must outlive the session.
    package init(_ side: Side, settings: Settings = Settings(), observer: HTTP2Observer) throws(HTTP2Failure) {
        (self.side, self.settings, self.observer) = (side, settings, observer)
        hasFirstFrame = side == .server
        var made: OpaquePointer?
        guard let callbacks = Self.makeCallbacks() else { throw HTTP2Failure(description: "no memory for HTTP/2") }
        defer { nghttp2_session_callbacks_del(callbacks) }
        var options: OpaquePointer?
        nghttp2_option_new(&options)
        defer { nghttp2_option_del(options) }
        // Bounds the queued SETTINGS and PING acknowledgments of a peer that does not read.
        nghttp2_option_set_max_outbound_ack(options, 1_000)
        // Bounds the entries of a SETTINGS frame.
        nghttp2_option_set_max_settings(options, 32)
        switch side {
        case .client: nghttp2_session_client_new2(&made, callbacks, nil, options)
        case .server: nghttp2_session_server_new2(&made, callbacks, nil, options)
        }
        guard let made else { throw HTTP2Failure(description: "no memory for HTTP/2") }
        raw = made
        nghttp2_session_set_user_data(raw, Unmanaged.passUnretained(self).toOpaque())
        var entries = [
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: settings.window),
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_HEADER_TABLE_SIZE.rawValue), value: settings.headerTableByteCount),
            nghttp2_settings_entry(
                settings_id: Int32(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE.rawValue),
                value: UInt32(settings.headerByteLimit)),
        ]
        switch side {
        case .client:
            entries.append(
                nghttp2_settings_entry(settings_id: Int32(NGHTTP2_SETTINGS_ENABLE_PUSH.rawValue), value: 0))
        case .server:
            entries.append(
                nghttp2_settings_entry(
                    settings_id: Int32(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS.rawValue),
                    value: settings.concurrentStreams))
        }
        nghttp2_submit_settings(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), entries, entries.count)
        // The connection's window, which all streams share.
        nghttp2_session_set_local_window_size(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), 0, 1 << 20)
    }

    deinit { nghttp2_session_del(raw) }

    // MARK: State

    package var streamCount: Int { streams.count }

    package var peerConcurrentStreams: Int {
        Int(nghttp2_session_get_remote_settings(raw, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
    }

    /// Whether the connection still has something to read or write.
    package var isAlive: Bool {
        !isRefused && !isOver && (nghttp2_session_want_read(raw) != 0 || nghttp2_session_want_write(raw) != 0)
    }

    /// Whether a client may send a new request: a stream number is left and the peer has sent no GOAWAY.
    package var takesRequests: Bool { !isRefused && !isOver && nghttp2_session_check_request_allowed(raw) != 0 }

    // MARK: Bytes

    package func receive(_ bytes: UnsafeRawBufferPointer) throws(HTTP2Failure) {
        guard !isRefused, !isOver else { return }
        guard !hasFirstFrame else { return try feed(bytes) }
        firstBytes += bytes
        guard firstBytes.count >= HTTP2Frame.headByteCount else { return }
        guard firstBytes[3] == HTTP2Frame.goAway else {
            hasFirstFrame = true
            let first = firstBytes
            firstBytes = []
            var failure: HTTP2Failure?
            first.withUnsafeBytes { bytes in
                do throws(HTTP2Failure) { try feed(bytes) } catch { failure = error }
            }
            if let failure { throw failure }
            return
        }
        // Some servers send GOAWAY before their settings, which nghttp2 treats as a protocol error.
        guard let goodbye = try HTTP2Frame.goodbye(firstBytes) else { return }
        isRefused = true
        firstBytes = []
        endStreams(HTTP2Code.refusedStream)
        observer.goneAway(lastStream: 0, code: goodbye.code, debug: goodbye.debug)
    }

    private func feed(_ bytes: UnsafeRawBufferPointer) throws(HTTP2Failure) {
        let result = nghttp2_session_mem_recv(raw, bytes.bindMemory(to: UInt8.self).baseAddress, bytes.count)
        guard result >= 0 else {
            let reason = nghttp2_strerror(Int32(result)).map { String(cString: $0) } ?? "error \(result)"
            throw HTTP2Failure(description: reason)
        }
    }

    /// Returns the next bytes to send, valid until the next call, or `nil` if none are pending.
    package func nextOutput() -> UnsafeRawBufferPointer? {
        guard !isOver else { return nil }
        var start: UnsafePointer<UInt8>?
        let count = nghttp2_session_mem_send(raw, &start)
        guard count > 0, let start else { return nil }
        return UnsafeRawBufferPointer(start: start, count: count)
    }

    /// Closes all streams because the connection has ended; nothing is read or sent afterwards.
    package func endStreams(_ code: UInt32) {
        isOver = true
        let ended = streams.values.sorted { $0.id < $1.id }
        streams = [:]
        for stream in ended { stream.closed(code) }
    }

    // MARK: Frames

    /// Sends a client's request with the stream's body; returns `false` if the connection accepts no more requests.
    package func request(_ headers: borrowing HTTP2Headers, _ stream: HTTP2Stream) -> Bool {
        guard takesRequests else { return false }
        var provider = Self.provider(of: stream)
        let id = Self.withFields(headers) { fields, count in
            stream.body.isEmpty
                ? nghttp2_submit_request(raw, nil, fields, count, nil, nil)
                : nghttp2_submit_request(raw, nil, fields, count, &provider, nil)
        }
        guard id > 0 else { return false }
        stream.begin(id)
        streams[id] = stream
        return true
    }

    /// Sends a server's response with the stream's body; has no effect on a closed stream.
    package func respond(_ headers: borrowing HTTP2Headers, _ stream: HTTP2Stream) {
        var provider = Self.provider(of: stream)
        _ = Self.withFields(headers) { fields, count in
            stream.body.isEmpty
                ? nghttp2_submit_response(raw, stream.id, fields, count, nil)
                : nghttp2_submit_response(raw, stream.id, fields, count, &provider)
        }
    }

    package func reset(_ stream: HTTP2Stream, _ code: UInt32) {
        nghttp2_submit_rst_stream(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), stream.id, code)
    }

    /// Sends a PING; the answer is reported as `HTTP2Observer.pongReceived`.
    package func ping() { nghttp2_submit_ping(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), nil) }

    /// Sends GOAWAY: no new streams are accepted.
    ///
    /// `lastStream` is the highest stream that is still processed, by default the highest received. `debug` is for the peer's
    /// log. Apple puts its reason there.
    package func goAway(lastStream: Int32? = nil, code: UInt32 = HTTP2Code.none, debug: [UInt8] = []) {
        let last = lastStream ?? nghttp2_session_get_last_proc_stream_id(raw)
        nghttp2_submit_goaway(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), last, code, debug, debug.count)
    }

    private static func provider(of stream: HTTP2Stream) -> nghttp2_data_provider {
        var provider = nghttp2_data_provider()
        provider.source.ptr = Unmanaged.passUnretained(stream).toOpaque()  // the session holds it until its end
        provider.read_callback = { _, _, room, length, flags, source, _ in
            guard let room, let flags, let context = source?.pointee.ptr else {
                return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
            }
            let stream = Unmanaged<HTTP2Stream>.fromOpaque(context).takeUnretainedValue()
            let count = min(length, stream.body.count - stream.sentByteCount)
            stream.body.withUnsafeBufferPointer { body in
                guard let start = body.baseAddress, count > 0 else { return }
                room.update(from: start + stream.sentByteCount, count: count)
            }
            stream.sentByteCount += count
            if stream.sentByteCount == stream.body.count { flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue }
            return count
        }
        return provider
    }

    private static func withFields(
        _ headers: borrowing HTTP2Headers, _ body: (UnsafePointer<nghttp2_nv>?, Int) -> Int32
    ) -> Int32 {
        let (bytes, fields) = (headers.bytes, headers.fields)
        return bytes.withUnsafeBufferPointer { bytes in
            guard let start = UnsafeMutablePointer(mutating: bytes.baseAddress) else { return body(nil, 0) }
            return withUnsafeTemporaryAllocation(of: nghttp2_nv.self, capacity: fields.count) { list in
                for (index, field) in fields.enumerated() {
                    let flag = field.isSensitive ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE
                    list.initializeElement(
                        at: index,
                        to: nghttp2_nv(
                            name: start + field.name.lowerBound, value: start + field.value.lowerBound,
                            namelen: field.name.count, valuelen: field.value.count, flags: UInt8(flag.rawValue)))
                }
                return body(list.baseAddress, fields.count)
            }
        }
    }
}

// MARK: Callbacks of nghttp2

extension HTTP2Session {
    private static func from(_ context: UnsafeMutableRawPointer?) -> HTTP2Session {
        guard let context else { preconditionFailure("nghttp2 lost the context pointer") }
        return Unmanaged<HTTP2Session>.fromOpaque(context).takeUnretainedValue()
    }

    private static func makeCallbacks() -> OpaquePointer? {
        var made: OpaquePointer?
        guard nghttp2_session_callbacks_new(&made) == 0, let callbacks = made else { return nil }
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks) { _, frame, context in
            guard let frame else { return 0 }
            return HTTP2Session.from(context).begin(frame.pointee.hd.stream_id, frame.pointee.headers.cat)
        }
        nghttp2_session_callbacks_set_on_header_callback(callbacks) {
            _, frame, name, nameCount, value, valueCount, _, context in
            guard let frame else { return 0 }
            return HTTP2Session.from(context).field(
                frame.pointee.hd.stream_id, UnsafeBufferPointer(start: name, count: nameCount),
                UnsafeBufferPointer(start: value, count: valueCount))
        }
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks) { _, _, id, bytes, count, context in
            HTTP2Session.from(context).streams[id]?.received(body: UnsafeBufferPointer(start: bytes, count: count))
            return 0
        }
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks) { _, frame, context in
            guard let frame else { return 0 }
            HTTP2Session.from(context).received(frame)
            return 0
        }
        // Called for a request that was still queued when the peer sent GOAWAY.
        nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks) { _, frame, _, context in
            guard let head = frame?.pointee.hd, UInt32(head.type) == NGHTTP2_HEADERS.rawValue else { return 0 }
            HTTP2Session.from(context).streams.removeValue(forKey: head.stream_id)?.closed(HTTP2Code.refusedStream)
            return 0
        }
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks) { _, id, code, context in
            HTTP2Session.from(context).streams.removeValue(forKey: id)?.closed(code)
            return 0
        }
        return callbacks
    }

    private func begin(_ id: Int32, _ category: nghttp2_headers_category) -> Int32 {
        guard side == .server, category == NGHTTP2_HCAT_REQUEST else { return 0 }
        guard let stream = observer.opened() else {
            nghttp2_submit_rst_stream(raw, UInt8(NGHTTP2_FLAG_NONE.rawValue), id, HTTP2Code.refusedStream)
            return 0
        }
        stream.begin(id)
        streams[id] = stream
        return 0
    }

    private func field(
        _ id: Int32, _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>
    ) -> Int32 {
        guard let stream = streams[id] else { return 0 }
        stream.headerByteCount += name.count + value.count + 32
        guard stream.headerByteCount <= settings.headerByteLimit else {
            return Int32(NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE.rawValue)
        }
        stream.received(header: name, value: value)
        return 0
    }

    private func received(_ frame: UnsafePointer<nghttp2_frame>) {
        let head = frame.pointee.hd
        switch UInt32(head.type) {
        case NGHTTP2_SETTINGS.rawValue:
            if UInt32(head.flags) & NGHTTP2_FLAG_ACK.rawValue == 0 { observer.settingsChanged() }
        case NGHTTP2_GOAWAY.rawValue:
            let goodbye = frame.pointee.goaway
            let debug = UnsafeBufferPointer(start: goodbye.opaque_data, count: goodbye.opaque_data_len)
            observer.goneAway(lastStream: goodbye.last_stream_id, code: goodbye.error_code, debug: Array(debug))
        case NGHTTP2_PING.rawValue:
            if UInt32(head.flags) & NGHTTP2_FLAG_ACK.rawValue != 0 { observer.pongReceived() }
        case NGHTTP2_HEADERS.rawValue, NGHTTP2_DATA.rawValue:
            if UInt32(head.flags) & NGHTTP2_FLAG_END_STREAM.rawValue != 0 {
                streams[head.stream_id]?.receivedEnd()
            }
        default: break
        }
    }
}
