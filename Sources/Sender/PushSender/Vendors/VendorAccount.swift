internal import Configuration
internal import Cryptography
internal import HTTPClient
internal import Vendors

/// A credential of a vendor.
struct VendorAccount: Sendable {
    var name: String
    var api: any VendorAPI
    /// The apps of this credential; empty for all apps that no other credential of the vendor names.
    var apps: [String]
    /// The digest of the settings, to recognise an unchanged credential at a reload.
    var digest: String
    /// The addresses that its requests may connect to.
    var addresses = HTTPCall.Addresses.any

    var vendor: Vendor { api.vendor }

    /// Builds the API from the settings; endpoints of Web Push come from devices, so they may not lead into private networks.
    init(
        name: String, vendor: Vendor, values: [String: [UInt8]], apps: [String]
    ) throws(CredentialFailure) {
        api = try VendorCredential.makeAPI(vendor, values: values)
        (self.name, self.apps) = (name, apps)
        var bytes: [UInt8] = []
        for (key, value) in values.sorted(by: { $0.key < $1.key }) {
            bytes += "\(key) \(value.count) ".utf8
            bytes += value
        }
        digest = SHA256.digest(bytes).hex
        guard vendor == .webPush else { return }
        let hosts = String(decoding: values["allowedHosts"] ?? [], as: UTF8.self)
            .split { $0 == "," || $0.isWhitespace }.map { $0.prefix { $0 != ":" } }
        // Names below `localhost` are always this machine (RFC 6761, section 6.3); an operator lists one for tests.
        addresses = hosts.contains { $0.hasSuffix(".localhost") } ? .globalOrLoopback : .global
    }
}

/// The bounds and network settings of a vendor's lanes; times are in milliseconds.
struct VendorSettings: Sendable, Equatable {
    /// The maximum number of connections of a lane.
    var connections: Int
    /// The maximum number of concurrent requests of a lane.
    var requests: Int
    var requestsPerSecond: Int
    var timeoutMilliseconds: UInt64 = 10_000
    var proxy: ProxyChoice?
    /// The PEM file of trusted certificates, or `nil` for the system's.
    var authoritiesFile: String?
    /// The margin between a request's timeout and the end of its job's lease.
    var leaseMargin: UInt64 = 2_000
    /// The backoff after a refused credential: doubled each time within this range.
    var rest: ClosedRange<UInt64> = 30_000...600_000
    /// The backoff after requests or token requests without an answer: doubled each time within this range.
    var pause: ClosedRange<UInt64> = 250...30_000
    /// The maximum of concurrent requests while the vendor has not accepted the credential since the start or the last backoff.
    var probes = 16
    /// The maximum of jobs that all failing lanes of the vendor hold together.
    var failingJobs = 500

    init(_ vendor: Vendor) {
        let facts = vendor.facts
        (connections, requests) = facts.wantsHTTP2 ? (4, 200) : (32, 32)
        requestsPerSecond = facts.requestsPerSecond
    }

    /// The bound of concurrent requests that follows from both settings: HTTP/1.1 has one request on a connection.
    func concurrency(_ vendor: Vendor) -> Int {
        min(requests, connections * (vendor.facts.wantsHTTP2 ? VendorTransport.streamLimit : 1))
    }

    /// Returns the call of a request; `account` is its credential.
    func call(_ request: VendorRequest, _ account: VendorAccount) -> HTTPCall {
        var call = HTTPCall(
            request.url, headers: request.headers.map { ($0.name, $0.value) }, body: request.body,
            userAgent: "longwire-sender", timeoutMilliseconds: Int(timeoutMilliseconds))
        call.method = request.method == "GET" ? .get : .post
        call.version = account.vendor.facts.wantsHTTP2 ? .http2 : .http1
        call.trust.authoritiesFile = authoritiesFile
        call.proxy = proxy?.proxy(for: request.url)
        call.addresses = account.addresses
        call.answerByteLimit = VendorReply.bodyByteCount
        call.unacknowledgedMilliseconds = 10_000
        return call
    }
}

extension ProxyChoice {
    /// Returns the proxy for an `https` URL, or `nil` if its host is excepted.
    func proxy(for url: String) -> HTTPProxy? {
        guard url.hasPrefix("https://") else { return nil }
        let authority = url.dropFirst(8).prefix { $0 != "/" && $0 != "?" }
        let host =
            authority.hasPrefix("[") ? authority.dropFirst().prefix { $0 != "]" } : authority.prefix { $0 != ":" }
        guard !Proxy.isExcepted(String(host), by: exceptions) else { return nil }
        // The credentials are sent to the proxy only.
        return HTTPProxy(url: "http://" + proxy.name, credentials: proxy.credentials?.exposed)
    }
}

extension VendorReply {
    init(_ reply: HTTPReply) {
        self.init(
            status: reply.status, retryAfter: reply.retryAfterMilliseconds.map { "\($0 / 1_000)" } ?? "",
            location: reply.location, body: reply.body)
    }
}
