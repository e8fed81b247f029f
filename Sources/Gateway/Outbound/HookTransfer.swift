internal import Configuration
internal import CCurl
internal import Glibc

/// One request to the hook's receiver on its way; confined to the dispatcher's thread.
///
/// Owns its curl handle and everything curl points into. `leave` takes it out of the multi handle; it must be called
/// before the last reference goes.
final class HookTransfer {
    enum Result: Equatable {
        case answer(HookResponse)
        case failure(HookFailure)
    }

    let delivery: HookDelivery
    let attempt: Int
    /// The dispatcher's count of configurations when it began.
    let edition: Int
    private let handle: UnsafeMutableRawPointer
    private var headerList: UnsafeMutablePointer<curl_slist>?
    /// curl reads it until the transfer ends.
    private let body: UnsafeMutableBufferPointer<UInt8>
    private var response: [UInt8] = []
    private var isTooLarge = false
    private var isInMulti = false
    fileprivate var wasRefusedAddress = false

    /// Starts the request; `nil` when curl has no memory or refuses an option.
    init?(
        _ delivery: HookDelivery, attempt: Int, headers: [(name: String, value: String)],
        configuration: GatewayConfiguration.Hook, edition: Int, multi: UnsafeMutableRawPointer
    ) {
        guard let handle = curl_easy_init() else { return nil }
        (self.delivery, self.attempt, self.edition, self.handle) = (delivery, attempt, edition, handle)
        body = .allocate(capacity: max(1, delivery.body.count))
        _ = body.update(fromContentsOf: delivery.body)
        guard setHeaders(headers), setOptions(configuration), curl_multi_add_handle(multi, handle) == CURLM_OK else {
            return nil
        }
        isInMulti = true
    }

    deinit {
        precondition(!isInMulti, "a HookTransfer was dropped before it left")
        curl_easy_cleanup(handle)
        curl_slist_free_all(headerList)
        body.deallocate()
    }

    func leave(_ multi: UnsafeMutableRawPointer) {
        guard isInMulti else { return }
        curl_multi_remove_handle(multi, handle)
        isInMulti = false
    }

    func isHandle(_ other: UnsafeMutableRawPointer) -> Bool { handle == other }

    private func setHeaders(_ headers: [(name: String, value: String)]) -> Bool {
        // An empty Expect: curl would otherwise wait up to a second for "100 Continue" before a larger body.
        let fixed = [("Content-Type", "application/json; charset=utf-8"), ("Expect", "")]
        for (name, value) in fixed + headers.map({ ($0.name, $0.value) }) {
            guard let list = curl_slist_append(headerList, value.isEmpty ? "\(name):" : "\(name): \(value)") else {
                return false
            }
            headerList = list
        }
        return true
    }

    private func setOptions(_ configuration: GatewayConfiguration.Hook) -> Bool {
        let context = Unmanaged.passUnretained(self).toOpaque()  // curl's handle dies with this object
        let protocols = configuration.url.isSecure ? "https" : "http"
        var codes: [CURLcode] = []
        func set(_ option: CURLoption, _ value: Int) { codes.append(longwire_curl_set_long(handle, option, value)) }
        func set(_ option: CURLoption, _ value: String) {
            // curl copies texts.
            codes.append(value.withCString { longwire_curl_set_pointer(handle, option, $0) })
        }
        set(CURLOPT_NOSIGNAL, 1)
        set(CURLOPT_URL, configuration.url.text)
        set(CURLOPT_PROTOCOLS_STR, protocols)
        set(CURLOPT_FOLLOWLOCATION, 0)
        // No proxy, whatever the environment says: it would see the request, and on loopback it would undo the check.
        set(CURLOPT_PROXY, "")
        set(CURLOPT_NETRC, Int(CURL_NETRC_IGNORED.rawValue))
        set(CURLOPT_POST, 1)
        set(CURLOPT_USERAGENT, "longwire")
        codes.append(longwire_curl_set_pointer(handle, CURLOPT_POSTFIELDS, body.baseAddress))
        codes.append(longwire_curl_set_size(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(delivery.body.count)))
        codes.append(longwire_curl_set_pointer(handle, CURLOPT_HTTPHEADER, headerList))
        set(CURLOPT_CONNECTTIMEOUT_MS, Int(min(HookLimits.connectTimeout, configuration.timeoutSeconds * 1_000)))
        set(CURLOPT_TIMEOUT_MS, Int(configuration.timeoutSeconds * 1_000))
        set(CURLOPT_SSL_VERIFYPEER, 1)
        set(CURLOPT_SSL_VERIFYHOST, 2)
        set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
        if let file = configuration.authoritiesFile { set(CURLOPT_CAINFO, file) }
        codes.append(
            longwire_curl_set_writer(
                handle,
                { bytes, size, count, context in
                    guard let bytes, let context else { return 0 }
                    let transfer = Unmanaged<HookTransfer>.fromOpaque(context).takeUnretainedValue()
                    return transfer.receive(UnsafeRawBufferPointer(start: bytes, count: size * count))
                }, context))
        if !configuration.url.isSecure {
            // "localhost" is a name, and names can change their mind between the check and the connection.
            codes.append(longwire_curl_set_pointer(handle, CURLOPT_OPENSOCKETDATA, context))
            codes.append(longwire_curl_set_socket_opener(handle, openLoopbackSocket))
        }
        return codes.allSatisfy { $0 == CURLE_OK }
    }

    private func receive(_ bytes: UnsafeRawBufferPointer) -> Int {
        guard response.count + bytes.count <= HookLimits.responseByteCount else {
            isTooLarge = true
            return 0  // ends the transfer
        }
        response.append(contentsOf: bytes)
        return bytes.count
    }

    /// What became of the request, once curl says it is done.
    func result(_ code: CURLcode) -> Result {
        guard code == CURLE_OK else {
            if isTooLarge { return .failure(.tooLarge) }
            if wasRefusedAddress { return .failure(.notLoopback) }
            switch code {
            case CURLE_COULDNT_RESOLVE_HOST: return .failure(.resolve)
            case CURLE_COULDNT_CONNECT: return .failure(.connect)
            case CURLE_OPERATION_TIMEDOUT: return .failure(.timeout)
            case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
                CURLE_SSL_CERTPROBLEM:
                return .failure(.tls)
            default: return .failure(.other)
            }
        }
        var status = 0
        guard longwire_curl_get_long(handle, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK else {
            return .failure(.other)
        }
        return .answer(HookResponse(status: status, body: response))
    }

    /// What the receiver asked for in Retry-After; `nil`: nothing.
    var retryAfterMilliseconds: Int64? {
        var seconds: curl_off_t = 0
        guard longwire_curl_get_size(handle, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK, seconds > 0 else {
            return nil
        }
        return min(Int64(seconds), 86_400) * 1_000
    }
}

/// Opens curl's socket, but to this machine only.
private func openLoopbackSocket(
    context: UnsafeMutableRawPointer?, purpose: curlsocktype, address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let context, let address else { return CURL_SOCKET_BAD }
    let transfer = Unmanaged<HookTransfer>.fromOpaque(context).takeUnretainedValue()
    // curl keeps room for any address where its declaration shows the shortest kind.
    let bytes = UnsafeRawPointer(address) + MemoryLayout<curl_sockaddr>.offset(of: \.addr)!
    let isLoopback: Bool
    switch address.pointee.family {
    case AF_INET:
        let four = bytes.loadUnaligned(as: sockaddr_in.self)
        isLoopback = UInt32(bigEndian: four.sin_addr.s_addr) >> 24 == 127
    case AF_INET6:
        let six = bytes.loadUnaligned(as: sockaddr_in6.self)
        isLoopback = withUnsafeBytes(of: six.sin6_addr) { $0.dropLast().allSatisfy { $0 == 0 } && $0[15] == 1 }
    default: isLoopback = false
    }
    guard isLoopback else {
        transfer.wasRefusedAddress = true
        return CURL_SOCKET_BAD
    }
    let kind = address.pointee.socktype | CInt(SOCK_CLOEXEC.rawValue)
    return socket(address.pointee.family, kind, address.pointee.protocol)
}
