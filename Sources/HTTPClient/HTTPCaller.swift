// HTTP/1.1 calls from a thread that may wait: a wrapper of libcurl. One call at a time; connections are kept.

internal import CCurl
internal import Glibc
internal import Synchronization

/// An answer.
package struct HTTPReply: Sendable, Equatable {
    package var status: Int
    package var body: [UInt8]
    /// Of the field Retry-After, in milliseconds; `nil`: none.
    package var retryAfterMilliseconds: Int64?
}

/// Why a call brought no answer; the text names the host's part in it.
package struct HTTPCallFailure: Error, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable { case resolve, connect, tls, timeout, tooLarge, cancelled, other }
    package var kind: Kind
    package var description: String
}

/// One thread's caller.
///
/// `call` belongs to one thread at a time; `cancel` may come from any.
package final class HTTPCaller: @unchecked Sendable {
    // Sound because the handles are used by the calling thread only, but for `curl_multi_wakeup`, which curl allows from
    // any thread, and the flag is atomic.

    /// The bounds of a call.
    package struct Limits: Sendable {
        package var connectMilliseconds = 5_000
        package var answerByteLimit = 64 << 20
        /// How long `end` waits for an answer on its way, in steps of ten milliseconds.
        package var endingPollCount = 50
        package init() {}
    }

    private let multi: OpaquePointer?
    private let handle: UnsafeMutableRawPointer
    private let authoritiesFile: String?
    private let limits: Limits
    private let isCancelled = Atomic<Bool>(false)
    private let isEnding = Atomic<Bool>(false)
    private var answer: [UInt8] = []
    private var isTooLarge = false

    private static let isReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    /// Makes a caller that trusts the PEM certificates of `authoritiesFile`, or with `nil` the system's.
    package init(authoritiesFile: String? = nil, limits: Limits = Limits()) throws(HTTPCallFailure) {
        guard Self.isReady, let multi = curl_multi_init(), let handle = curl_easy_init() else {
            throw HTTPCallFailure(kind: .other, description: "libcurl has no memory")
        }
        self.multi = OpaquePointer(multi)
        (self.handle, self.authoritiesFile, self.limits) = (handle, authoritiesFile, limits)
    }

    deinit {
        curl_easy_cleanup(handle)
        curl_multi_cleanup(rawMulti)
    }

    private var rawMulti: UnsafeMutableRawPointer? { multi.map { UnsafeMutableRawPointer($0) } }

    /// Ends the call under way, and each later one.
    package func cancel() {
        isCancelled.store(true, ordering: .releasing)
        curl_multi_wakeup(rawMulti)
    }

    /// Ends the call under way, but takes an answer that is on its way already; refuses each later call.
    ///
    /// Our half of the connection closes: a server of long polls sees that nobody waits, and sends nothing new.
    package func end() {
        isEnding.store(true, ordering: .releasing)
        curl_multi_wakeup(rawMulti)
    }

    /// Calls by `GET` or `POST` and waits for the answer; `headers` go out besides curl's own, a body with `POST` only.
    package func call(
        _ method: String, _ url: String, headers: [(String, String)], body: [UInt8] = [], timeoutMilliseconds: Int
    ) throws(HTTPCallFailure) -> HTTPReply {
        guard !isCancelled.load(ordering: .acquiring), !isEnding.load(ordering: .acquiring) else {
            throw Self.cancelled
        }
        (answer, isTooLarge) = ([], false)
        // Connections survive a reset.
        curl_easy_reset(handle)
        var list: UnsafeMutablePointer<curl_slist>?
        defer { curl_slist_free_all(list) }
        // An empty Expect: curl would otherwise wait up to a second for "100 Continue" before a larger body.
        for (name, value) in headers + [("Expect", "")] {
            let line = value.isEmpty ? "\(name):" : "\(name): \(value)"
            guard let longer = curl_slist_append(list, line) else {
                throw HTTPCallFailure(kind: .other, description: "libcurl has no memory")
            }
            list = longer
        }
        // curl reads it until the transfer ends.
        let sent = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, body.count), alignment: 1)
        defer { sent.deallocate() }
        sent.copyBytes(from: body)
        let bytes = UnsafeRawBufferPointer(start: sent.baseAddress, count: body.count)
        try setOptions(method, url, list, bytes, timeoutMilliseconds)
        let result = try perform()
        guard result == CURLE_OK else { throw failure(result, url) }
        var status = 0
        longwire_curl_get_long(handle, CURLINFO_RESPONSE_CODE, &status)
        var seconds: curl_off_t = 0
        longwire_curl_get_size(handle, CURLINFO_RETRY_AFTER, &seconds)
        return HTTPReply(
            status: status, body: answer,
            retryAfterMilliseconds: seconds > 0 ? min(Int64(seconds), 86_400) * 1_000 : nil)
    }

    private func setOptions(
        _ method: String, _ url: String, _ list: UnsafeMutablePointer<curl_slist>?, _ body: UnsafeRawBufferPointer,
        _ timeout: Int
    ) throws(HTTPCallFailure) {
        var codes: [CURLcode] = []
        func set(_ option: CURLoption, _ value: Int) { codes.append(longwire_curl_set_long(handle, option, value)) }
        func set(_ option: CURLoption, _ value: String) {
            codes.append(value.withCString { longwire_curl_set_pointer(handle, option, $0) })
        }
        set(CURLOPT_NOSIGNAL, 1)
        set(CURLOPT_URL, url)
        set(CURLOPT_PROTOCOLS_STR, "http,https")
        set(CURLOPT_FOLLOWLOCATION, 0)
        // No proxy, whatever the environment says: it would see the bearer token.
        set(CURLOPT_PROXY, "")
        set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        set(CURLOPT_USERAGENT, "longwire-apns")
        set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        set(CURLOPT_CONNECTTIMEOUT_MS, limits.connectMilliseconds)
        set(CURLOPT_TIMEOUT_MS, timeout)
        set(CURLOPT_TCP_NODELAY, 1)
        if let authoritiesFile { set(CURLOPT_CAINFO, authoritiesFile) }
        if method == "POST" {
            set(CURLOPT_POST, 1)
            codes.append(
                longwire_curl_set_pointer(handle, CURLOPT_POSTFIELDS, body.baseAddress))
            codes.append(longwire_curl_set_size(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.count)))
        }
        codes.append(longwire_curl_set_pointer(handle, CURLOPT_HTTPHEADER, list))
        codes.append(
            longwire_curl_set_writer(
                handle,
                { bytes, size, count, context in
                    guard let bytes, let context else { return 0 }
                    let caller = Unmanaged<HTTPCaller>.fromOpaque(context).takeUnretainedValue()
                    return caller.receive(UnsafeRawBufferPointer(start: bytes, count: size * count))
                }, Unmanaged.passUnretained(self).toOpaque()))
        guard codes.allSatisfy({ $0 == CURLE_OK }) else {
            throw HTTPCallFailure(kind: .other, description: "libcurl refuses the address \(url)")
        }
    }

    private func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard answer.count + bytes.count <= limits.answerByteLimit else {
            isTooLarge = true
            return 0  // ends the transfer
        }
        answer += bytes
        return bytes.count
    }

    /// Drives the transfer to its end.
    private func perform() throws(HTTPCallFailure) -> CURLcode {
        guard curl_multi_add_handle(rawMulti, handle) == CURLM_OK else {
            throw HTTPCallFailure(kind: .other, description: "libcurl has no memory")
        }
        defer { curl_multi_remove_handle(rawMulti, handle) }
        var pollCount = 0
        while true {
            var (running, ready, left): (CInt, CInt, CInt) = (0, 0, 0)
            guard curl_multi_perform(rawMulti, &running) == CURLM_OK else {
                throw HTTPCallFailure(kind: .other, description: "libcurl failed")
            }
            while let message = curl_multi_info_read(rawMulti, &left) {
                if message.pointee.msg == CURLMSG_DONE { return message.pointee.data.result }
            }
            if isCancelled.load(ordering: .acquiring) { throw Self.cancelled }
            if isEnding.load(ordering: .acquiring) {
                if pollCount == 0 { closeOurHalf() }
                guard pollCount < limits.endingPollCount else { throw Self.cancelled }
                pollCount += 1
            }
            curl_multi_poll(rawMulti, nil, 0, pollCount > 0 ? 10 : 1_000, &ready)
        }
    }

    private func closeOurHalf() {
        var socket = CInt(-1)
        // curl gives a socket where its declaration shows any value.
        let code = withUnsafeMutablePointer(to: &socket) { place in
            longwire_curl_get_socket(handle, place)
        }
        if code == CURLE_OK, socket >= 0 { shutdown(socket, CInt(SHUT_WR)) }
    }

    private static let cancelled = HTTPCallFailure(kind: .cancelled, description: "the call was cancelled")

    private func failure(_ code: CURLcode, _ url: String) -> HTTPCallFailure {
        if isTooLarge { return HTTPCallFailure(kind: .tooLarge, description: "the answer of \(url) is too large") }
        let text = curl_easy_strerror(code).map { String(cString: $0) } ?? "error \(code.rawValue)"
        let kind: HTTPCallFailure.Kind
        switch code {
        case CURLE_COULDNT_RESOLVE_HOST: kind = .resolve
        case CURLE_COULDNT_CONNECT: kind = .connect
        case CURLE_OPERATION_TIMEDOUT: kind = .timeout
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE: kind = .tls
        default: kind = .other
        }
        return HTTPCallFailure(kind: kind, description: "\(url): \(text)")
    }
}
