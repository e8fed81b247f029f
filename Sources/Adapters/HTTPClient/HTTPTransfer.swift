internal import CCurl
internal import Glibc

/// The TLS settings of an HTTPS client: trusted roots and client certificate.
package struct HTTPTrust: Sendable, Equatable {
    /// The PEM file of trusted certificates, or `nil` for the system's.
    package var authoritiesFile: String?
    /// The PEM file of the client certificate, read at each connection.
    package var certificateFile: String?
    /// The PEM file of the certificate's key, or `nil` if the certificate's file contains the key.
    package var keyFile: String?

    package init(authoritiesFile: String? = nil, certificateFile: String? = nil, keyFile: String? = nil) {
        (self.authoritiesFile, self.certificateFile, self.keyFile) = (authoritiesFile, certificateFile, keyFile)
    }
}

package struct HTTPCall: Sendable {
    package enum Method: Sendable { case get, post, patch, delete }
    package enum Version: Sendable {
        /// curl's default.
        case any
        case http1
        /// HTTP/2 if the server offers it with TLS; requests wait for a shared connection.
        case http2
    }
    package enum Addresses: Sendable {
        case any
        /// No private, link-local, multicast, reserved or loopback address.
        case global
        case globalOrLoopback
    }

    package var method = Method.post
    /// The URL; `http://` is limited to this machine by `isLoopbackOnly`.
    package var url: String
    package var headers: [(name: String, value: String)]
    /// The body, for POST and PATCH only.
    package var body: [UInt8]
    package var userAgent: String
    package var connectMilliseconds = 5_000
    package var timeoutMilliseconds: Int
    package var trust = HTTPTrust()
    /// Whether plain HTTP is allowed only to loopback addresses.
    package var isLoopbackOnly = true
    package var version = Version.any
    package var proxy: HTTPProxy?
    /// The addresses that a connection may have; not checked with a proxy, because curl then connects to the proxy's address.
    package var addresses = Addresses.any
    /// The time after which the system ends a connection whose peer acknowledges no data, or 0.
    ///
    /// Many requests share an HTTP/2 connection. Without this timeout, new requests would continue to use a dead connection.
    package var unacknowledgedMilliseconds = 0
    /// The maximum size of the answer's body in bytes; a larger body ends the request.
    package var answerByteLimit = 64 << 20

    package init(
        _ url: String, headers: [(name: String, value: String)], body: [UInt8] = [], userAgent: String,
        timeoutMilliseconds: Int
    ) {
        (self.url, self.headers, self.body) = (url, headers, body)
        (self.userAgent, self.timeoutMilliseconds) = (userAgent, timeoutMilliseconds)
    }

    fileprivate var isSecure: Bool { url.lowercased().hasPrefix("https://") }
}

/// An HTTP proxy that takes CONNECT.
package struct HTTPProxy: Sendable, Equatable {
    /// `http://HOST:PORT`.
    package var url: String
    /// `USER:PASSWORD`, or `nil`.
    package var credentials: String?

    package init(url: String, credentials: String? = nil) { (self.url, self.credentials) = (url, credentials) }
}

package struct HTTPReply: Sendable, Equatable {
    package var status: Int
    package var body: [UInt8]
    /// The delay of the field Retry-After in milliseconds, or `nil` without one.
    package var retryAfterMilliseconds: Int64?
    /// The field Location, or empty.
    package var location = ""

    package init(status: Int, body: [UInt8], retryAfterMilliseconds: Int64? = nil, location: String = "") {
        (self.status, self.body) = (status, body)
        (self.retryAfterMilliseconds, self.location) = (retryAfterMilliseconds, location)
    }
}

/// The failure of a request without a complete answer; the text names the address.
package struct HTTPCallFailure: Error, Equatable, CustomStringConvertible {
    package enum Kind: Sendable, Equatable {
        case resolve, connect, tls, certificate, ownCertificate, timeout, tooLarge, notLoopback, cancelled
        /// The host has only addresses that `HTTPCall.Addresses` forbids.
        case forbiddenAddress
        /// The connection ended before the answer was complete.
        case cut
        case other
    }
    package var kind: Kind
    package var description: String
    /// The cause of the failure without the URL, which may be confidential.
    package var cause = ""
    /// Whether the server may have received the request.
    package var mayHaveArrived = true

    package init(kind: Kind, description: String, cause: String = "", mayHaveArrived: Bool = true) {
        (self.kind, self.description) = (kind, description)
        (self.cause, self.mayHaveArrived) = (cause, mayHaveArrived)
    }

    package static let cancelled = HTTPCallFailure(kind: .cancelled, description: "the call was cancelled")
    /// The call was cancelled before the request was sent.
    package static let cancelledUnsent = HTTPCallFailure(
        kind: .cancelled, description: "the call was cancelled", mayHaveArrived: false)
    package static let noMemory = HTTPCallFailure(
        kind: .other, description: "libcurl has no memory", cause: "libcurl has no memory", mayHaveArrived: false)
}

/// A request in progress, confined to the thread of its `HTTPTransfers`.
///
/// It owns the curl handle and all memory that curl points to. `leave` must be called before the last reference is released.
package final class HTTPTransfer {
    /// The largest request and answer for which curl gets small buffers.
    private static let smallByteCount = 64 << 10

    private let call: HTTPCall
    let handle: UnsafeMutableRawPointer
    private unowned let transfers: HTTPTransfers
    private var headerList: UnsafeMutablePointer<curl_slist>?
    /// The request body, which must stay in memory until the transfer ends because curl reads it.
    private let body: UnsafeMutableBufferPointer<UInt8>
    /// curl's error buffer, empty on success; it must outlive the handle because curl writes to it.
    private let detail: UnsafeMutablePointer<CChar>
    private var answer: [UInt8] = []
    private var isTooLarge = false
    private var isUnderWay = false
    fileprivate var wasRefusedAddress = false
    fileprivate var isForLoopbackOnly: Bool { !call.isSecure && call.isLoopbackOnly }
    fileprivate var unacknowledgedMilliseconds: Int { call.unacknowledgedMilliseconds }

    /// Starts the request; fails when curl has no memory or rejects an option.
    package init?(_ call: HTTPCall, in transfers: HTTPTransfers) {
        guard let handle = curl_easy_init() else { return nil }
        (self.call, self.handle, self.transfers) = (call, handle, transfers)
        body = .allocate(capacity: max(1, call.body.count))
        _ = body.update(fromContentsOf: call.body)
        detail = .allocate(capacity: Int(CURL_ERROR_SIZE))
        detail.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        guard setHeaders(), setOptions(), transfers.add(self) else { return nil }
        isUnderWay = true
    }

    deinit {
        precondition(!isUnderWay, "a transfer was dropped before it left")
        curl_easy_cleanup(handle)
        curl_slist_free_all(headerList)
        body.deallocate()
        detail.deallocate()
    }

    /// Removes the request from its thread; a later answer is not read.
    package func leave() {
        guard isUnderWay else { return }
        isUnderWay = false
        transfers.remove(self)
    }

    /// Shuts down the sending side of the socket; a long-poll server detects that no client waits and starts no answer.
    package func closeOurHalf() {
        var socket = CInt(-1)
        if longwire_curl_get_socket(handle, &socket) == CURLE_OK, socket >= 0 { shutdown(socket, CInt(SHUT_WR)) }
    }

    /// Whether a connection to an address of this scope is allowed.
    fileprivate func permits(_ scope: AddressScope?) -> Bool {
        if isForLoopbackOnly { return scope == .loopback }
        return call.proxy != nil || call.addresses.permits(scope)
    }

    private func setHeaders() -> Bool {
        // An empty Expect field. Otherwise curl waits up to a second for "100 Continue" before a larger body.
        for (name, value) in call.headers + [(name: "Expect", value: "")] {
            guard let list = curl_slist_append(headerList, value.isEmpty ? "\(name):" : "\(name): \(value)") else {
                return false
            }
            headerList = list
        }
        return true
    }

    private func setOptions() -> Bool {
        let context = Unmanaged.passUnretained(self).toOpaque()  // the handle is freed with this object
        var codes: [CURLcode] = []
        func set(_ option: CURLoption, _ value: Int) { codes.append(longwire_curl_set_long(handle, option, value)) }
        func set(_ option: CURLoption, _ value: String) {
            // curl copies strings.
            codes.append(value.withCString { longwire_curl_set_pointer(handle, option, $0) })
        }
        set(CURLOPT_NOSIGNAL, 1)
        // Without this option the end of a transfer waits for its resolver thread, and blocks all other transfers of this thread.
        set(CURLOPT_QUICK_EXIT, 1)
        codes.append(longwire_curl_set_pointer(handle, CURLOPT_ERRORBUFFER, detail))
        set(CURLOPT_URL, call.url)
        set(CURLOPT_PROTOCOLS_STR, call.isSecure ? "https" : "http")
        set(CURLOPT_FOLLOWLOCATION, 0)
        // An empty value disables a proxy from the environment, which would see the request and bypass the loopback check.
        set(CURLOPT_PROXY, call.proxy?.url ?? "")
        if let proxy = call.proxy {
            set(CURLOPT_HTTPPROXYTUNNEL, 1)
            if let credentials = proxy.credentials { set(CURLOPT_PROXYUSERPWD, credentials) }
        }
        switch call.version {
        case .any: break
        case .http1: set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        case .http2:
            set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
            set(CURLOPT_PIPEWAIT, 1)
        }
        set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        set(CURLOPT_USERAGENT, call.userAgent)
        set(CURLOPT_TCP_NODELAY, 1)
        if call.method == .post || call.method == .patch {
            set(CURLOPT_POST, 1)
            codes.append(longwire_curl_set_pointer(handle, CURLOPT_POSTFIELDS, body.baseAddress))
            codes.append(longwire_curl_set_size(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(call.body.count)))
        }
        codes.append(longwire_curl_set_pointer(handle, CURLOPT_HTTPHEADER, headerList))
        if call.method == .patch { set(CURLOPT_CUSTOMREQUEST, "PATCH") }
        if call.method == .delete { set(CURLOPT_CUSTOMREQUEST, "DELETE") }
        set(CURLOPT_CONNECTTIMEOUT_MS, min(call.connectMilliseconds, call.timeoutMilliseconds))
        set(CURLOPT_TIMEOUT_MS, call.timeoutMilliseconds)
        set(CURLOPT_SSL_VERIFYPEER, 1)
        set(CURLOPT_SSL_VERIFYHOST, 2)
        set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        if let file = call.trust.authoritiesFile { set(CURLOPT_CAINFO, file) }
        if let file = call.trust.certificateFile {
            set(CURLOPT_SSLCERT, file)
            set(CURLOPT_SSLKEY, call.trust.keyFile ?? file)
            // A key with a passphrase is an error. Otherwise OpenSSL would prompt on the terminal.
            set(CURLOPT_KEYPASSWD, "")
        }
        if call.answerByteLimit <= Self.smallByteCount, call.body.count <= Self.smallByteCount {
            // curl allocates both buffers for each request, by default 16 and 64 KiB.
            set(CURLOPT_BUFFERSIZE, 4 << 10)
            set(CURLOPT_UPLOAD_BUFFERSIZE, 16 << 10)
        }
        codes.append(
            longwire_curl_set_writer(
                handle,
                { bytes, size, count, context in
                    guard let bytes, let context else { return 0 }
                    let transfer = Unmanaged<HTTPTransfer>.fromOpaque(context).takeUnretainedValue()
                    return transfer.receive(UnsafeRawBufferPointer(start: bytes, count: size * count))
                }, context))
        if isForLoopbackOnly || call.addresses != .any || call.unacknowledgedMilliseconds > 0 {
            // The socket's address is checked, because a name such as "localhost" may resolve to another address when curl
            // connects.
            codes.append(longwire_curl_set_pointer(handle, CURLOPT_OPENSOCKETDATA, context))
            codes.append(longwire_curl_set_socket_opener(handle, openCheckedSocket))
        }
        return codes.allSatisfy { $0 == CURLE_OK }
    }

    private func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard answer.count + bytes.count <= call.answerByteLimit else {
            isTooLarge = true
            return 0  // ends the transfer
        }
        answer.append(contentsOf: bytes)
        return bytes.count
    }

    func result(_ code: CURLcode) -> Result<HTTPReply, HTTPCallFailure> {
        var status = 0
        if code == CURLE_OK, longwire_curl_get_long(handle, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK {
            return .success(
                HTTPReply(
                    status: status, body: answer, retryAfterMilliseconds: retryAfterMilliseconds,
                    location: header("Location")))
        }
        let name = curl_easy_strerror(code).map { String(cString: $0) } ?? "error \(code.rawValue)"
        // A TLS error code does not identify the certificate or the cause. The text in curl's error buffer does.
        let detail = call.isSecure ? String(cString: detail) : ""
        let text = detail.isEmpty ? name : "\(name) (\(detail))"
        if isTooLarge { return failure(.tooLarge, "the answer is too large") }
        if wasRefusedAddress {
            return isForLoopbackOnly
                ? failure(.notLoopback, "plain http is for this machine only")
                : failure(.forbiddenAddress, "the host has a private or reserved address")
        }
        switch code {
        case CURLE_COULDNT_RESOLVE_HOST: return failure(.resolve, text)
        case CURLE_COULDNT_CONNECT: return failure(.connect, text)
        case CURLE_OPERATION_TIMEDOUT: return failure(.timeout, text)
        case CURLE_PEER_FAILED_VERIFICATION: return failure(.certificate, text)
        case CURLE_SSL_CERTPROBLEM, CURLE_SSL_CLIENTCERT: return failure(.ownCertificate, text)
        case CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CACERT_BADFILE: return failure(.tls, text)
        case CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_GOT_NOTHING: return failure(.cut, text)
        default: return failure(.other, text)
        }
    }

    private func failure(_ kind: HTTPCallFailure.Kind, _ text: String) -> Result<HTTPReply, HTTPCallFailure> {
        .failure(
            HTTPCallFailure(
                kind: kind, description: "\(call.url): \(text)", cause: text, mayHaveArrived: hasBegun))
    }

    /// Whether curl has begun to send the request, so that it may have arrived.
    package var hasBegun: Bool {
        // curl sets this time just before it sends the request.
        var sentAt: curl_off_t = 0
        return longwire_curl_get_size(handle, CURLINFO_PRETRANSFER_TIME_T, &sentAt) != CURLE_OK || sentAt > 0
    }

    private func header(_ name: String) -> String {
        var field: UnsafeMutablePointer<curl_header>?
        guard curl_easy_header(handle, name, 0, CUnsignedInt(CURLH_HEADER), -1, &field) == CURLHE_OK,
            let value = field?.pointee.value
        else { return "" }
        return String(cString: value)
    }

    private var retryAfterMilliseconds: Int64? {
        var seconds: curl_off_t = 0
        guard longwire_curl_get_size(handle, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK, seconds > 0 else {
            return nil
        }
        return min(Int64(seconds), 86_400) * 1_000
    }
}

/// Opens curl's socket if the call permits its address.
private func openCheckedSocket(
    context: UnsafeMutableRawPointer?, purpose: curlsocktype, address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let context, let address else { return CURL_SOCKET_BAD }
    let transfer = Unmanaged<HTTPTransfer>.fromOpaque(context).takeUnretainedValue()
    // The declaration has only a `sockaddr`, but curl reserves space for any address after it.
    let bytes = UnsafeRawPointer(address) + MemoryLayout<curl_sockaddr>.offset(of: \.addr)!
    guard transfer.permits(AddressScope.scope(family: address.pointee.family, bytes)) else {
        transfer.wasRefusedAddress = true
        return CURL_SOCKET_BAD
    }
    let kind = address.pointee.socktype | CInt(SOCK_CLOEXEC.rawValue)
    let opened = socket(address.pointee.family, kind, address.pointee.protocol)
    var limit = CUnsignedInt(clamping: transfer.unacknowledgedMilliseconds)
    if opened >= 0, limit > 0 {
        setsockopt(opened, CInt(IPPROTO_TCP), TCP_USER_TIMEOUT, &limit, socklen_t(MemoryLayout<CUnsignedInt>.size))
    }
    return opened
}
