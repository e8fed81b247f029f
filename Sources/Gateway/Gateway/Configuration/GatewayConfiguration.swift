package import Quotas
package import Configuration
package import Delivery
package import EventLoops
package import PushAPI
package import Wire

/// Everything an operator decides, read and checked: an immutable value that each loop gets a copy of.
///
/// docs/use/Operations.md describes the file key by key. `ConfigurationFile` reads it; nothing here touches the disk.
package struct GatewayConfiguration: Sendable, Equatable {
    /// A plain listener, and one with TLS beside it.
    package struct Listener: Sendable, Equatable {
        /// `nil`: switched off.
        package var plain: ListenAddress?
        package var tls: TLSListener?
        /// Whose connections begin with a PROXY header that names the client.
        package var balancers: [AddressRange] = []
        package init(plain: ListenAddress?, tls: TLSListener? = nil) { (self.plain, self.tls) = (plain, tls) }

        /// Both addresses, as far as there are any.
        package var addresses: [ListenAddress] { [plain, tls?.address].compactMap(\.self) }
    }

    /// The listeners, as the file names them.
    package static let listeners:
        [(name: String, path: any WritableKeyPath<GatewayConfiguration, Listener> & Sendable)] = [
            ("device", \.device), ("http", \.http), ("senders", \.senders), ("admin", \.admin),
        ]

    /// Devices that speak through a WebSocket on the device listeners.
    package struct WebSockets: Sendable, Equatable {
        package var isEnabled = true
        /// Sites whose pages may be devices, as a browser names them: `https://app.example.com`.
        package var origins: [WebOrigin] = []
    }

    package struct TLSListener: Sendable, Equatable {
        package var address: ListenAddress
        /// PEM files; the certificate's file holds the whole chain.
        ///
        /// Read again at each reload.
        package var certificateFile: String
        package var keyFile: String
        /// PEM file of the authorities whose clients alone may connect; `nil`: clients show no certificate.
        ///
        /// Read again at each reload.
        package var clientAuthoritiesFile: String?
        /// One of them must be in a client's certificate; empty: none is asked for.
        package var clientNames: [String] = []
    }

    /// What an acceptance promises.
    package enum Durability: String, Sendable, CaseIterable {
        /// Synced to the disk.
        case fsync
        /// Handed to the operating system: survives a killed process, not a power cut.
        case os
    }

    /// Whose descriptor tables the loops use.
    package enum LoopTables: String, Sendable, CaseIterable {
        /// All threads share the process's, and its limit of open files.
        case shared
        /// Each loop has one, and a limit, of its own: for more connections than one limit allows.
        case own
    }

    package struct Hook: Sendable, Equatable {
        package var url: HookURL
        /// `whsec_…`, newest first.
        ///
        /// Each request carries a signature for every one.
        package var secrets: [Secret]
        /// PEM file of the certificate authorities to trust instead of the system's.
        package var authoritiesFile: String?
        /// Most jobs in one request.
        package var batchJobs = 100
        package var timeoutSeconds: Int64 = 10
    }

    package struct Logging: Sendable, Equatable {
        package var format = LogFormat.text
        package var level = LogLevel.info
    }

    /// The file it came from; `nil`: embedded defaults.
    package var file: String?
    /// 1 at start, one more with each accepted reload; `/readyz` shows it.
    package var version: UInt64 = 1

    package var device = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_000))
    package var http = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_080))
    package var senders = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_001))
    package var admin = Listener(plain: ListenAddress(host: "127.0.0.1", port: 7_081))
    /// Registration over plain TCP from beyond loopback.
    ///
    /// Otherwise it needs TLS, as the device's secret travels.
    package var allowPlaintextRegistration = false
    package var webSockets = WebSockets()

    package var storePath = "longwire-data"
    package var durability = Durability.fsync
    /// Where `POST /v1/backup` makes backups; `nil`: the folder `backups` in `storePath`.
    package var backupPath: String?
    /// `nil`: the embedded engine.
    package var redis: RedisConfiguration?
    /// Set if and only if `redis` is.
    package var cluster: ClusterConfiguration?
    package var loopCount = 1
    package var loopTables = LoopTables.shared
    package var limits = GatewayLimits()
    /// Addresses that the bounds per address do not count for, beside this machine's.
    package var exemptAddresses: [AddressRange] = []
    package var apps: [AppConfiguration] = []
    package var credentials: [Credential] = []
    package var hook: Hook?
    package var logging = Logging()
    /// The demo app of the data folder is added to `apps` (`GeneratedCredentials`).
    package var usesDemoApp = false
    /// What is allowed but unwise, to be logged at start.
    package var warnings: [String] = []

    package init() {}

    /// What one address may do.
    var addressRules: AddressRules {
        AddressRules(
            connections: limits.connectionsPerAddress, arrivalsPerSecond: limits.newConnectionsPerSecondPerAddress,
            requestsPerSecond: limits.requestsPerSecondPerAddress,
            requestBytesPerSecond: limits.requestBytesPerSecondPerAddress)
    }

    package func app(id: String) -> AppConfiguration? { apps.first { $0.appID == id } }
}

/// One tenant as configured.
///
/// Secrets are newest first; every one of them is accepted.
package struct AppConfiguration: Sendable, Equatable {
    package var appID: String
    package var appKey: String
    package var appSecrets: [Secret]
    package var masterSecrets: [Secret]
    /// The topic of tokens that name none; empty: such tokens must name theirs.
    package var apnsTopic = ""
    package var apnsTemplate = APNsTemplate()
    package var queuedMessageLimit = 1_000
    package var queuedByteLimit = 4 << 20
    package var overflowPolicy = AppSettings.OverflowPolicy.reject
    package var maxAttempts = 5
    package var push = PushConfiguration()
    package var quotas = AppQuotas()
    /// `nil`: the app takes no messages from its devices.
    package var upstream: FeedConfiguration?
    /// `nil`: the app has no events.
    package var events: FeedConfiguration?

    package init(appID: String, appKey: String, appSecrets: [Secret], masterSecrets: [Secret]) {
        (self.appID, self.appKey, self.appSecrets, self.masterSecrets) = (appID, appKey, appSecrets, masterSecrets)
    }

    /// The shards' view; `key` is the first eight bytes of SHA-256(appId).
    package func settings(key: AppKey) -> AppSettings {
        var settings = AppSettings(key: key, appID: appID, apnsTopic: apnsTopic)
        settings.queuedMessageLimit = queuedMessageLimit
        settings.queuedByteLimit = queuedByteLimit
        settings.overflowPolicy = overflowPolicy
        settings.maxAttempts = maxAttempts
        (settings.upstream, settings.events) = (upstream?.limits, events?.limits)
        return settings
    }
}

/// One bearer of the admin listener: a sender service, a dashboard, a person.
package struct Credential: Sendable, Equatable {
    package enum Permission: String, Sendable, CaseIterable, Comparable {
        /// Lease, extend and settle handoff jobs.
        case handoff
        /// Read traces and devices.
        case trace
        /// Read upstream messages.
        case upstream
        /// Follow events.
        case events
        /// All of it, and whatever changes the gateway.
        case admin
        package static func < (left: Permission, right: Permission) -> Bool { left.rawValue < right.rawValue }
    }

    /// For logs: it tells who called.
    package var name: String
    /// Newest first; each is accepted.
    package var tokens: [Secret]
    /// appIds it may see; `nil`: all.
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
    /// Who bears `token`; `nil`: nobody.
    ///
    /// Looks at every token, so that the time taken tells nothing about a match.
    package func credential(bearing token: some Collection<UInt8>) -> Credential? {
        var found: Credential?
        for credential in credentials {
            for known in credential.tokens where known.matches(token) && found == nil { found = credential }
        }
        return found
    }

    /// The keys whose change from `old` counts only after a restart; a reload keeps their old values.
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

    /// What a reload puts in force, checked: limits that change at once may contradict those that wait for a restart.
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

    /// What a reload puts in force: this configuration, with the old values of all that needs a restart.
    package func applied(over old: GatewayConfiguration) -> GatewayConfiguration {
        var next = self
        next.version = old.version + 1
        // A TLS listener keeps its address and takes its new files; one that appears or goes waits for the restart.
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
