package import Quotas
package import Configuration
package import Delivery
package import EventLoops
package import PushAPI
package import Wire

/// The operator's validated settings, an immutable value that is copied to each loop.
///
/// docs/use/Operations.md describes the file key by key. `ConfigurationFile` reads it; this type does no disk access.
package struct GatewayConfiguration: Sendable, Equatable {
    package struct Listener: Sendable, Equatable {
        /// The address for connections without TLS; `nil` if it is off.
        package var plain: ListenAddress?
        package var tls: TLSListener?
        /// Addresses of load balancers, whose connections begin with a PROXY header.
        package var balancers: [AddressRange] = []
        package init(plain: ListenAddress?, tls: TLSListener? = nil) { (self.plain, self.tls) = (plain, tls) }

        package var addresses: [ListenAddress] { [plain, tls?.address].compactMap(\.self) }
    }

    /// The listeners by their names in the file.
    package static let listeners:
        [(name: String, path: any WritableKeyPath<GatewayConfiguration, Listener> & Sendable)] = [
            ("device", \.device), ("http", \.http), ("senders", \.senders), ("admin", \.admin),
        ]

    package struct WebSockets: Sendable, Equatable {
        package var isEnabled = true
        /// Web origins whose pages may connect as devices, for example `https://app.example.com`.
        package var origins: [WebOrigin] = []
    }

    package struct TLSListener: Sendable, Equatable {
        package var address: ListenAddress
        /// The PEM file with the whole certificate chain; it is read again at each reload.
        package var certificateFile: String
        package var keyFile: String
        /// The PEM file of the authorities for client certificates, read at each reload; `nil` to request no certificate.
        package var clientAuthoritiesFile: String?
        /// The accepted names in client certificates; empty to accept every name.
        package var clientNames: [String] = []
    }

    /// The guarantee for an accepted message.
    package enum Durability: String, Sendable, CaseIterable {
        /// Synced to disk.
        case fsync
        /// Written to the operating system: survives a killed process but not a power failure.
        case os
    }

    /// The descriptor tables of the loops.
    package enum LoopTables: String, Sendable, CaseIterable {
        /// All threads share the process's table and its limit of open files.
        case shared
        /// Each loop has its own table and limit, for more connections than one limit allows.
        case own
    }

    package struct Hook: Sendable, Equatable {
        package var url: HookURL
        /// The `whsec_…` secrets, newest first; each request is signed with all of them.
        package var secrets: [Secret]
        /// The PEM file of the certificate authorities that replace the system's.
        package var authoritiesFile: String?
        package var batchJobs = 100
        package var timeoutSeconds: Int64 = 10
        /// The channels whose jobs are posted to the hook.
        ///
        /// Jobs of other channels must be leased. By default, follow-up channels such as SMS are not included, because the
        /// receiver is often `longwire-sender`, which does not serve them.
        package var channels = VendorChannel.vendors
        package var form = Form.pages

        /// The format in which the pages of a feed are posted.
        package enum Form: Sendable, Equatable {
            case pages
            /// Receipts in Getui's format, signed with the app's newest masterSecret (`GetuiReceipts`).
            case getuiReceipts(masterSecret: Secret)
        }
    }

    package struct Logging: Sendable, Equatable {
        package var format = LogFormat.text
        package var level = LogLevel.info
    }

    /// The configuration file; `nil` for the defaults.
    package var file: String?
    /// The version: 1 at the start, incremented with each accepted reload, and shown by `/readyz`.
    package var version: UInt64 = 1

    package var device = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_000))
    package var http = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_080))
    package var senders = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_001))
    package var admin = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_081))
    /// Whether devices beyond loopback may register over plain TCP, which reveals the device's secret.
    package var allowPlaintextRegistration = false
    package var webSockets = WebSockets()

    package var storePath = "longwire-data"
    package var durability = Durability.fsync
    /// The folder for `POST /v1/backup`; `nil` for `backups` in `storePath`.
    package var backupPath: String?
    /// The Redis store; `nil` for the embedded engine.
    package var redis: RedisConfiguration?
    /// The cluster; set if and only if `redis` is.
    package var cluster: ClusterConfiguration?
    package var loopCount = 1
    package var loopTables = LoopTables.shared
    package var limits = GatewayLimits()
    /// Addresses without per-address limits, in addition to loopback addresses.
    package var exemptAddresses: [AddressRange] = []
    /// The HTTP proxies in front of the push API.
    package var forwarded = ForwardedClients()
    package var apps: [AppConfiguration] = []
    package var credentials: [Credential] = []
    package var hook: Hook?
    package var logging = Logging()
    /// Whether the demo app of the data folder is added to `apps` (`GeneratedCredentials`).
    package var usesDemoApp = false
    /// Warnings about valid but risky settings, logged at the start.
    package var warnings: [String] = []

    package init() {}

    var addressRules: AddressRules {
        AddressRules(
            connections: limits.connectionsPerAddress, arrivalsPerSecond: limits.newConnectionsPerSecondPerAddress,
            requestsPerSecond: limits.requestsPerSecondPerAddress,
            requestBytesPerSecond: limits.requestBytesPerSecondPerAddress)
    }

    package func app(id: String) -> AppConfiguration? { apps.first { $0.appID == id } }
}

/// The configuration of an app; its secrets are newest first, and each is accepted.
package struct AppConfiguration: Sendable, Equatable {
    package var appID: String
    package var appKey: String
    package var appSecrets: [Secret]
    package var masterSecrets: [Secret]
    /// The APNs topic of device tokens that name none; empty if every token must name its topic.
    package var apnsTopic = ""
    package var apnsTemplate = APNsTemplate()
    package var queuedMessageLimit = 1_000
    package var queuedByteLimit = 4 << 20
    package var overflowPolicy = AppSettings.OverflowPolicy.reject
    package var maxAttempts = 5
    /// The preferred vendors of a device with tokens of several (`AppSettings.vendorOrder`).
    package var vendors: [VendorChannel] = []
    /// Whether devices can register with the appSecret.
    ///
    /// Otherwise they need a token of the app's server.
    package var registersBySecret = true
    /// The public keys for RS256 tokens, in PEM form.
    package var tokenKeys: [String] = []
    /// The permissions of devices to change their own aliases and tags; none by default.
    package var deviceMay: Set<DevicePermission> = []
    package var push = PushConfiguration()
    package var quotas = AppQuotas()
    /// The feed of messages from the app's devices; `nil` if disabled.
    package var upstream: FeedConfiguration?
    /// The feed of events; `nil` if disabled.
    package var events: FeedConfiguration?

    package init(appID: String, appKey: String, appSecrets: [Secret], masterSecrets: [Secret]) {
        (self.appID, self.appKey, self.appSecrets, self.masterSecrets) = (appID, appKey, appSecrets, masterSecrets)
    }

    /// Returns the settings for the shards; `key` is the first eight bytes of SHA-256(appId).
    package func settings(key: AppKey) -> AppSettings {
        var settings = AppSettings(key: key, appID: appID, apnsTopic: apnsTopic)
        settings.queuedMessageLimit = queuedMessageLimit
        settings.queuedByteLimit = queuedByteLimit
        settings.overflowPolicy = overflowPolicy
        settings.maxAttempts = maxAttempts
        settings.vendorOrder = vendors
        (settings.upstream, settings.events) = (upstream?.limits, events?.limits)
        return settings
    }
}

/// The credential of a client of the admin listener: a sender service, a dashboard or a person.
package struct Credential: Sendable, Equatable {
    package enum Permission: String, Sendable, CaseIterable, Comparable {
        /// May lease, extend and settle handoff jobs.
        case handoff
        /// May read traces and devices.
        case trace
        /// May read upstream messages.
        case upstream
        /// May read events.
        case events
        /// Has all permissions, including changes to the gateway.
        case admin
        package static func < (left: Permission, right: Permission) -> Bool { left.rawValue < right.rawValue }
    }

    /// The name that logs record for each call.
    package var name: String
    /// The tokens, newest first; each is accepted.
    package var tokens: [Secret]
    /// The visible appIds; `nil` for all.
    package var apps: Set<String>?
    package var permissions: Set<Permission>

    package init(name: String, tokens: [Secret], apps: Set<String>?, permissions: Set<Permission>) {
        (self.name, self.tokens, self.apps, self.permissions) = (name, tokens, apps, permissions)
    }

    package func may(_ permission: Permission) -> Bool {
        permissions.contains(permission) || permissions.contains(.admin)
    }

    package func sees(appID: String) -> Bool { apps?.contains(appID) ?? true }
}

extension GatewayConfiguration {
    /// Returns the credential with this token; compares all tokens, so that the duration does not reveal a match.
    package func credential(bearing token: some Collection<UInt8>) -> Credential? {
        var found: Credential?
        for credential in credentials {
            for known in credential.tokens where known.matches(token) && found == nil { found = credential }
        }
        return found
    }

    /// The keys whose change from `old` takes effect only after a restart.
    package func keysNeedingRestart(since old: GatewayConfiguration) -> [String] {
        var keys: [String] = []
        for (name, path) in Self.listeners {
            let (new, old) = (self[keyPath: path], old[keyPath: path])
            if new.plain != old.plain { keys.append("\(name).listen") }
            if new.tls?.address != old.tls?.address { keys.append("\(name).tls.listen") }
            if new.balancers != old.balancers { keys.append("\(name).balancers") }
        }
        if storePath != old.storePath { keys.append("store.path") }
        if durability != old.durability { keys.append("store.durability") }
        if loopCount != old.loopCount { keys.append("loops") }
        if loopTables != old.loopTables { keys.append("loopTables") }
        keys += clusterKeysNeedingRestart(since: old)
        if logging.format != old.logging.format { keys.append("log.format") }
        for key in LimitKey.all where !key.changesAtReload && key.read(limits) != key.read(old.limits) {
            keys.append("limits.\(key.name)")
        }
        return keys
    }

    /// Returns the configuration after a reload, or throws if its limits conflict with limits that need a restart.
    package func reloaded(over old: GatewayConfiguration) throws(ConfigurationError) -> GatewayConfiguration {
        let next = applied(over: old)
        let broken = next.limits.brokenRelations()
        guard broken.isEmpty else {
            throw ConfigurationError(
                file: file,
                problems: broken.map { key, rule in
                    ConfigurationProblem(
                        path: "limits.\(key)", position: nil,
                        text: rule + "; this counts with the limits that only a restart changes")
                })
        }
        return next
    }

    /// Returns this configuration with the old values of all settings that need a restart.
    package func applied(over old: GatewayConfiguration) -> GatewayConfiguration {
        var next = self
        next.version = old.version + 1
        // A TLS listener keeps its address and gets the new files. Adding or removing a TLS listener needs a restart.
        for (_, path) in Self.listeners {
            next[keyPath: path].plain = old[keyPath: path].plain
            next[keyPath: path].balancers = old[keyPath: path].balancers
            next[keyPath: path].tls = Self.reloaded(self[keyPath: path].tls, over: old[keyPath: path].tls)
        }
        (next.storePath, next.durability, next.loopCount) = (old.storePath, old.durability, old.loopCount)
        next.loopTables = old.loopTables
        (next.redis, next.cluster) = (old.redis, old.cluster)
        next.logging.format = old.logging.format
        for key in LimitKey.all where !key.changesAtReload { key.write(&next.limits, key.read(old.limits)) }
        return next
    }

    private static func reloaded(_ new: TLSListener?, over old: TLSListener?) -> TLSListener? {
        guard let old else { return nil }
        guard var new else { return old }
        new.address = old.address
        return new
    }
}
