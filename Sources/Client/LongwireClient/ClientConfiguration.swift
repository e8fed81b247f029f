public import Wire

/// Everything a client is told before it starts.
public struct ClientConfiguration: Sendable {
    public var host: String
    public var port: UInt16
    /// TLS towards the gateway.
    ///
    /// Registration from afar needs it unless the gateway allows otherwise.
    public var usesTLS = false
    /// A PEM file of certificates to trust instead of the system's; for gateways with a certificate of their own.
    public var trustedCertificatesPath: String?
    /// Pinning: SHA-256 digests of certificates (DER), 32 bytes each; empty: none.
    ///
    /// Beside the usual verification one certificate of the gateway's chain must then have one of these digests. Pin the
    /// authority's certificate and a spare rather than the gateway's own, which is renewed more often than apps are.
    public var pinnedCertificates: [[UInt8]] = []
    /// A PEM file with the certificate that is shown to a gateway whose listener asks for one, and its chain.
    ///
    /// On Linux only: Apple's systems keep a client's certificate in the keychain, which this client does not read.
    public var clientCertificatePath: String?
    /// A PEM file with that certificate's key; `nil`: it stands in the certificate's file.
    public var clientKeyPath: String?
    public var appID: String
    /// Needed only until the device is registered.
    public var appSecret: String
    /// Product and version for the gateway's logs, up to 64 characters.
    public var clientName = "longwire-swift/1"
    /// A wish, in seconds; 0: the gateway's default.
    public var heartbeatSeconds: UInt32 = 0
    /// The most un-acked messages wanted at once; 0: the gateway's default.
    public var window: UInt32 = 0
    public var applicationState = ApplicationState.foreground
    /// True when the app keeps its socket alive in the background, so that `background` is reachable.
    public var keepsRunning = false
    public var badge: Int32?
    public var tokens: [VendorToken] = []
    /// Opened messages are to be delivered again, as Getui does.
    public var replaysOpened = false
    /// False: stop at the first connection that ends, whatever the reason.
    public var reconnects = true
    /// As `LongwireClient.setPushModeOff` said last.
    var pushModeOff: Bool?

    public init(host: String, port: UInt16, appID: String, appSecret: String = "") {
        (self.host, self.port, self.appID, self.appSecret) = (host, port, appID, appSecret)
    }

    /// Throws `badConfiguration` naming the first value that cannot work.
    func validate() throws(LongwireClientError) {
        func refuse(_ message: String) -> LongwireClientError {
            LongwireClientError(code: .badConfiguration, message: message)
        }
        if host.isEmpty { throw refuse("the host is empty") }
        if port == 0 { throw refuse("the port is 0; name the gateway's device port") }
        if appID.isEmpty { throw refuse("the appID is empty") }
        if clientName.utf8.count > 64 { throw refuse("clientName is longer than 64 bytes") }
        if heartbeatSeconds != 0, !(30...1_800).contains(heartbeatSeconds) {
            throw refuse("heartbeatSeconds is \(heartbeatSeconds); it must be 0 or 30 to 1800")
        }
        if pinnedCertificates.contains(where: { $0.count != 32 }) {
            throw refuse("a pinned certificate is named by the 32 bytes of its SHA-256 digest")
        }
        if !usesTLS, !pinnedCertificates.isEmpty { throw refuse("pinnedCertificates needs usesTLS") }
        if !usesTLS, clientCertificatePath != nil { throw refuse("clientCertificatePath needs usesTLS") }
        if clientKeyPath != nil, clientCertificatePath == nil {
            throw refuse("clientKeyPath is the key of clientCertificatePath, which is not given")
        }
        #if canImport(Darwin)
        if clientCertificatePath != nil { throw refuse("clientCertificatePath works on Linux only") }
        #endif
        guard tokens.count <= Limits.tokenCount else { throw refuse("there are more than \(Limits.tokenCount) tokens") }
        for token in tokens {
            do throws(TokenFault) {
                _ = try token.cleaned()
            } catch {
                throw refuse("\(error.reason)")
            }
        }
    }
}
