package import Configuration
internal import Cryptography

/// The Redis servers that replace the embedded storage engine.
package struct RedisConfiguration: Sendable, Equatable {
    /// TLS settings for the servers; without files, the system's trust store and no client certificate.
    package struct TLS: Sendable, Equatable {
        /// The PEM file of the trusted authorities; `nil` for the system's trust store.
        package var authoritiesFile: String?
        /// The PEM files of the client certificate and its key; both are set, or neither is.
        package var certificateFile: String?
        package var keyFile: String?
        /// The name in the servers' certificates; `nil` for each server's host.
        package var serverName: String?
        package init() {}
    }

    /// The seed servers; the first one that answers returns the addresses of all servers.
    package var nodes: [HostPort]
    /// The ACL user; `nil` for the default user.
    package var user: String?
    package var password: Secret?
    package var tls: TLS?
    /// The number of replicas that must confirm a change before it counts as durable.
    package var minReplicas = 1
    /// Whether the operator guarantees `appendfsync always` on servers that hide the setting.
    package var assumesFsync = false

    package init(nodes: [HostPort]) { self.nodes = nodes }
}

package struct ClusterConfiguration: Sendable, Equatable {
    /// The name of the cluster, part of all Redis keys.
    package var name = "longwire"
    /// The number of partitions, fixed when the cluster is created.
    package var partCount = 16
    /// The address for links from other gateways; `nil` for a cluster of one gateway.
    package var listen: ListenAddress?
    /// The address at which other gateways reach this one; set whenever `listen` is.
    package var advertise: ListenAddress?
    /// The address to which other gateways redirect this gateway's devices; `nil` if they relay the connections instead.
    package var deviceAddress: HostPort?
    package var deviceTLSAddress: HostPort?
    /// The shared secrets for links, newest first; each is accepted.
    package var secrets: [Secret] = []

    package init() {}

    package static let partCounts: [Int64] = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    package static let nodeLimit = 64
    package static let replicaLimit: Int64 = 5
}

extension ConfigurationReader {
    /// Reads `store.redis` and `cluster`; `cluster` requires `store.redis`.
    ///
    /// The caller has read all other keys of `store`, but has not called `finish`.
    func readCluster(
        _ root: ConfigurationObject, store: ConfigurationObject?, _ secrets: inout SecretReader,
        into configuration: inout GatewayConfiguration
    ) {
        if let store, let redis = store.object("redis") {
            configuration.redis = readRedis(redis, &secrets)
            if store.has("durability") {
                store.report("durability", "not allowed beside redis; the servers' appendfsync decides")
            }
            if configuration.loopTables == .own {
                root.report("loopTables", "\"own\" is not allowed with store.redis; \"shared\"")
            }
            configuration.cluster = ClusterConfiguration()
        }
        guard let cluster = root.object("cluster") else { return }
        let read = readCluster(cluster, &secrets)
        guard store?.has("redis") == true else {
            root.report("cluster", "not allowed without store.redis; gateways of a cluster share Redis servers")
            return
        }
        configuration.cluster = read
    }

    private func readRedis(_ object: ConfigurationObject, _ secrets: inout SecretReader) -> RedisConfiguration? {
        let texts = object.strings("nodes", limit: ClusterConfiguration.nodeLimit)
        if !object.has("nodes") { object.report("nodes", "missing; one or more of \(HostPort.allowed)") }
        var nodes: [HostPort] = []
        for text in texts ?? [] {
            guard let node = HostPort(text) else {
                object.report("nodes", "\"\(text.prefix(64))\" is not allowed; \(HostPort.allowed)")
                continue
            }
            if nodes.contains(node) { object.report("nodes", "\(node) stands twice") }
            nodes.append(node)
        }
        var redis = RedisConfiguration(nodes: nodes)
        redis.user = object.string("user", allowed: "1 to 128 visible ASCII characters") {
            SecretReader.isVisible($0, 1...128)
        }
        // Both keys are read in either case, so that neither is reported as unknown.
        let hasPassword = object.has("password") || object.has("passwordFile")
        if hasPassword {
            let passwords = secrets.read(object, "password", 1...512)
            if let passwords, passwords.count > 1 {
                object.report("password", "\(passwords.count) values are not allowed; the servers take one")
            }
            redis.password = passwords?.first
        } else {
            _ = (object.node("password"), object.node("passwordFile"))
            if redis.user != nil { object.report("user", "not allowed without password or passwordFile") }
        }
        redis.tls = readRedisTLS(object)
        if let count = object.integer("minReplicas", in: 0...ClusterConfiguration.replicaLimit) {
            redis.minReplicas = Int(count)
        }
        if let assumes = object.boolean("assumesFsync") { redis.assumesFsync = assumes }
        object.finish()
        return nodes.isEmpty ? nil : redis
    }

    private func readRedisTLS(_ object: ConfigurationObject) -> RedisConfiguration.TLS? {
        if case .boolean(let isOn) = object.node("tls")?.value { return isOn ? RedisConfiguration.TLS() : nil }
        guard let section = object.object("tls") else { return nil }
        var tls = RedisConfiguration.TLS()
        tls.authoritiesFile = readAuthorities(section, "caFile")
        tls.certificateFile = readFilePath(section, "certificate")
        tls.keyFile = readFilePath(section, "key")
        if section.has("certificate") != section.has("key") {
            let missing = section.has("key") ? "certificate" : "key"
            section.report(missing, "missing; certificate and key go together")
        }
        if let certificate = tls.certificateFile, let key = tls.keyFile {
            do throws(TLSFailure) {
                _ = try TLSContext(trusting: .anyone, showing: certificate, keyPath: key)
            } catch { section.report("certificate", error.description) }
        }
        tls.serverName = section.string("serverName", allowed: "the name in the servers' certificates") {
            HostPort("\($0):1") != nil
        }
        section.finish()
        return tls
    }

    private func readCluster(_ object: ConfigurationObject, _ secrets: inout SecretReader) -> ClusterConfiguration {
        var cluster = ClusterConfiguration()
        let name = object.string("name", allowed: Self.appIDRule, where: Self.isAppID)
        if let name { cluster.name = name }
        let allowed = ClusterConfiguration.partCounts.map { "\($0)" }.joined(separator: ", ")
        if let count = object.integer("parts", in: 1...256) {
            if ClusterConfiguration.partCounts.contains(count) {
                cluster.partCount = Int(count)
            } else {
                object.report("parts", "\(count) is not allowed; one of \(allowed)")
            }
        }
        cluster.listen = readAddress(object, default: nil, canBeOff: false)
        cluster.advertise = readAdvertised(object, listen: cluster.listen)
        if let devices = object.object("advertiseDevices") {
            (cluster.deviceAddress, cluster.deviceTLSAddress) = (hostPort(devices, "plain"), hostPort(devices, "tls"))
            devices.finish()
        }
        if object.has("secret") || object.has("secretFile") {
            cluster.secrets = secrets.read(object, "secret", 32...256) ?? []
        } else {
            _ = (object.node("secret"), object.node("secretFile"))
            if object.has("listen") {
                object.report("secretFile", "missing; cluster.listen needs it: the same file on every gateway")
            }
        }
        if !object.has("listen") {
            for key in ["advertise", "advertiseDevices", "secret", "secretFile"] where object.has(key) {
                object.report(key, "not allowed without cluster.listen")
            }
        }
        object.finish()
        return cluster
    }

    /// Reads the address for other gateways; it must be numeric, so that no loop waits for name resolution.
    private func readAdvertised(_ object: ConfigurationObject, listen: ListenAddress?) -> ListenAddress? {
        let allowed = "\"ADDRESS:PORT\" with a numeric address that other gateways reach, as \"10.0.0.5:7100\""
        let text = object.string("advertise", allowed: allowed) {
            guard let address = ListenAddress($0) else { return false }
            return !address.isUnspecified && address.port > 0
        }
        if let text { return ListenAddress(text) }
        guard let listen, !object.has("advertise") else { return nil }
        if listen.isUnspecified {
            object.report(
                "advertise", "missing; cluster.listen is \(listen), so name the address at which others reach this one")
        }
        return listen
    }

    private func hostPort(_ object: ConfigurationObject, _ key: String) -> HostPort? {
        object.string(key, allowed: HostPort.allowed, where: { HostPort($0) != nil }).flatMap { HostPort($0) }
    }
}

extension GatewayConfiguration {
    /// The keys of `store.redis` and `cluster` that differ from `old`; each takes effect only after a restart.
    func clusterKeysNeedingRestart(since old: GatewayConfiguration) -> [String] {
        var keys: [String] = []
        if redis != old.redis { keys.append("store.redis") }
        guard let new = cluster, let old = old.cluster else {
            if (cluster == nil) != (old.cluster == nil), redis == old.redis { keys.append("cluster") }
            return keys
        }
        if new.name != old.name { keys.append("cluster.name") }
        if new.partCount != old.partCount { keys.append("cluster.parts") }
        if new.listen != old.listen { keys.append("cluster.listen") }
        if new.advertise != old.advertise { keys.append("cluster.advertise") }
        if (new.deviceAddress, new.deviceTLSAddress) != (old.deviceAddress, old.deviceTLSAddress) {
            keys.append("cluster.advertiseDevices")
        }
        if new.secrets != old.secrets { keys.append("cluster.secretFile") }
        return keys
    }
}
