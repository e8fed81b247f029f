// The only wrapper of libcurl. One thread drives several requests, or waits for one with `HTTPCaller`.

internal import CCurl

/// The requests of one thread and curl's connection pool; any thread may call `wake`.
package final class HTTPTransfers: @unchecked Sendable {
    // Safe: one thread at a time uses it, apart from `curl_multi_wakeup`, which curl allows from any thread.

    private let raw: UnsafeMutableRawPointer
    private var underWay: [UnsafeMutableRawPointer: HTTPTransfer] = [:]
    private static let isReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    /// The bounds of the connection pool; 0 stands for curl's default.
    package struct Bounds: Sendable {
        package var connections = 0
        package var connectionsPerHost = 0
        /// The maximum number of concurrent requests on an HTTP/2 connection.
        package var streams = 0
        package init() {}
    }

    /// Fails when curl cannot be initialized or has no memory.
    package init?(_ bounds: Bounds = Bounds()) {
        guard Self.isReady, let raw = curl_multi_init() else { return nil }
        self.raw = raw
        let options: [(CURLMoption, Int)] = [
            (CURLMOPT_MAXCONNECTS, bounds.connections), (CURLMOPT_MAX_HOST_CONNECTIONS, bounds.connectionsPerHost),
            (CURLMOPT_MAX_CONCURRENT_STREAMS, bounds.streams),
        ]
        for (option, value) in options where value > 0 { longwire_curl_multi_set_long(raw, option, value) }
        longwire_curl_multi_set_long(raw, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
    }

    deinit { curl_multi_cleanup(raw) }

    func add(_ transfer: HTTPTransfer) -> Bool {
        guard curl_multi_add_handle(raw, transfer.handle) == CURLM_OK else { return false }
        underWay[transfer.handle] = transfer
        return true
    }

    func remove(_ transfer: HTTPTransfer) {
        curl_multi_remove_handle(raw, transfer.handle)
        underWay[transfer.handle] = nil
    }

    /// Continues all requests until the network would block.
    package func perform() {
        var count: CInt = 0
        curl_multi_perform(raw, &count)
    }

    /// Returns and removes the next finished request, or returns `nil` if there is none.
    package func nextEnded() -> (transfer: HTTPTransfer, result: Result<HTTPReply, HTTPCallFailure>)? {
        var left: CInt = 0
        while let message = curl_multi_info_read(raw, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let handle = message.pointee.easy_handle,
                let transfer = underWay[handle]
            else { continue }
            let result = transfer.result(message.pointee.data.result)
            transfer.leave()
            return (transfer, result)
        }
        return nil
    }

    /// Waits for network activity, `wake`, input on `descriptor` or the timeout; returns whether that input is available.
    @discardableResult
    package func wait(milliseconds: Int64, orInputOn descriptor: CInt? = nil) -> Bool {
        var count: CInt = 0
        guard let descriptor else {
            curl_multi_poll(raw, nil, 0, CInt(clamping: milliseconds), &count)
            return false
        }
        var entry = curl_waitfd(fd: descriptor, events: CShort(CURL_WAIT_POLLIN), revents: 0)
        curl_multi_poll(raw, &entry, 1, CInt(clamping: milliseconds), &count)
        return entry.revents != 0
    }

    /// Interrupts `wait` from any thread.
    package func wake() { curl_multi_wakeup(raw) }
}
