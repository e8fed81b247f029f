public import Wire

/// The settings of a client; `LongwireClient.start` checks them.
public struct ClientConfiguration: Sendable {
    /// The gateway's host name, or a numeric address.
    public var host: String
    /// The gateway's device port.
    public var port: UInt16
    /// Whether the connection to the gateway uses TLS.
    ///
    /// A gateway refuses a registration without TLS from another machine, unless its configuration allows it.
    public var usesTLS = false
    /// A PEM file of trusted certificates that replaces the system's, for a gateway with a self-signed or private certificate.
    public var trustedCertificatesPath: String?
    /// SHA-256 digests of pinned certificates (DER), 32 bytes each.
    ///
    /// Empty disables pinning. The usual verification still applies. In addition, one certificate of the gateway's chain must
    /// have one of these digests. Pin the authority's certificate and a spare one: the gateway's own certificate is renewed
    /// more often than apps are updated.
    public var pinnedCertificates: [[UInt8]] = []
    /// A PEM file with the client certificate and its chain, for a gateway whose listener requires a client certificate.
    ///
    /// Linux only: Apple's systems keep client certificates in the keychain, which this client does not read.
    public var clientCertificatePath: String?
    /// A PEM file with the key of `clientCertificatePath`; with `nil` the key is in the certificate's file.
    public var clientKeyPath: String?
    /// The id of the app at the gateway.
    public var appID: String
    /// The app's secret; needed only until the device is registered.
    public var appSecret: String
    /// A token of the app's server that registers the device without an `appSecret`.
    ///
    /// The token is a JSON Web Token with the app's id in `aud` and an expiry in `exp`. The client also binds the alias in its
    /// `sub`, once after each start. `LongwireClient.setRegistrationToken` sets the token of a later start.
    /// `LongwireClient.bindAlias(token:)` binds the alias of another user.
    public var registrationToken = ""
    /// The product and version for the gateway's logs, up to 64 bytes of UTF-8.
    public var clientName = "longwire-swift/1"
    /// The requested heartbeat in seconds, 30 to 1800; with 0 the gateway's default applies.
    public var heartbeatSeconds: UInt32 = 0
    /// The requested maximum of un-acked messages in flight; with 0 the gateway's default applies.
    public var window: UInt32 = 0
    /// The state of the app that the first Hello reports.
    public var applicationState = ApplicationState.foreground
    /// Whether the app keeps its socket open in the background; if so, the device is reachable in the background.
    public var keepsRunning = false
    /// The badge number that the gateway continues from, or `nil` to leave the gateway's number unchanged.
    public var badge: Int32?
    /// The vendor tokens of this device, at most 16.
    public var tokens: [VendorToken] = []
    /// The attributes of the device, or `nil` to send none.
    ///
    /// The app's server reads them, and selects devices by them. The default has the attributes that the system knows, see
    /// `DeviceAttributes.current`. The app adds the notification permission. The gateway drops an attribute that is too long or
    /// malformed.
    public var attributes: DeviceAttributes? = .current
    /// Whether messages that the user opened from a notification are delivered over the connection as well, as Getui does.
    public var replaysOpened = false
    /// Whether the client reconnects; if false, the client stops when its first connection ends, for any reason.
    public var reconnects = true
    /// The last value of `LongwireClient.setPushModeOff`.
    var pushModeOff: Bool?

    public init(host: String, port: UInt16, appID: String, appSecret: String = "") {
        (self.host, self.port, self.appID, self.appSecret) = (host, port, appID, appSecret)
    }

    /// Throws `badConfiguration` for the first invalid value, and names the value.
    func validate() throws(LongwireClientError) {
        func refuse(_ message: String) -> LongwireClientError {
            LongwireClientError(code: .badConfiguration, message: message)
        }
        if host.isEmpty { throw refuse("the host is empty") }
        if port == 0 { throw refuse("the port is 0; name the gateway's device port") }
        if appID.isEmpty { throw refuse("the appID is empty") }
        if registrationToken.utf8.count > Wire.Limits.webTokenByteCount {
            throw refuse("the registrationToken is longer than \(Wire.Limits.webTokenByteCount) bytes")
        }
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
        for token in tokens { _ = try token.checked() }
    }
}
