import Configuration
import Testing

@testable import Gateway

@Suite("Configuration of Redis and the cluster")
struct ClusterConfigurationTests {
    static let secret = String(repeating: "s", count: 32)

    private func read(_ text: String, file: String = "/etc/longwire/longwire.json5") throws -> GatewayConfiguration {
        try ConfigurationFile.read(Array(text.utf8), file: file)
    }

    @Test("every key is read")
    func everyKey() throws {
        let folder = TemporaryFolder()
        try folder.writeCertificate("cert.pem", key: "key.pem")
        try folder.writeCertificate("ca.pem", key: "ca.key")
        folder.write("password", "correct horse\n".replacing(" ", with: "-"), mode: 0o600)
        folder.write("cluster-secret", Self.secret + "\n", mode: 0o600)
        folder.write("old-secret", String(repeating: "o", count: 40), mode: 0o600)
        let configuration = try read(
            """
            {demo: true,
             store: {path: 'data', redis: {nodes: ['redis-1.example:6379', '10.0.0.2:6380', '[fd00::7]:6379'],
               user: 'longwire', passwordFile: 'password', minReplicas: 2,
               tls: {caFile: 'ca.pem', certificate: 'cert.pem', key: 'key.pem', serverName: 'redis.example'}}},
             cluster: {name: 'shop', parts: 64, listen: '0.0.0.0:7100', advertise: '10.0.0.5:7100',
               advertiseDevices: {plain: 'gw-1.example:7000', tls: 'gw-1.example:7443'},
               secretFile: ['cluster-secret', 'old-secret']}}
            """, file: "\(folder.path)/c.json5")
        let redis = try #require(configuration.redis)
        #expect(redis.nodes.map(\.description) == ["redis-1.example:6379", "10.0.0.2:6380", "[fd00::7]:6379"])
        #expect(redis.user == "longwire" && redis.password == Secret("correct-horse") && redis.minReplicas == 2)
        #expect(redis.tls?.authoritiesFile == "\(folder.path)/ca.pem")
        #expect(redis.tls?.certificateFile == "\(folder.path)/cert.pem")
        #expect(redis.tls?.keyFile == "\(folder.path)/key.pem")
        #expect(redis.tls?.serverName == "redis.example")
        let cluster = try #require(configuration.cluster)
        #expect(cluster.name == "shop" && cluster.partCount == 64)
        #expect(cluster.listen?.description == "0.0.0.0:7100")
        #expect(cluster.advertise?.description == "10.0.0.5:7100")
        #expect(cluster.deviceAddress?.description == "gw-1.example:7000")
        #expect(cluster.deviceTLSAddress?.description == "gw-1.example:7443")
        #expect(cluster.secrets == [Secret(Self.secret), Secret(String(repeating: "o", count: 40))])
        #expect(configuration.warnings.isEmpty)
    }

    @Test("a gateway on Redis without a cluster section is a cluster of one; without Redis it has no cluster")
    func defaults() throws {
        let alone = try read("{demo: true, store: {redis: {nodes: 'localhost:6379', tls: true}}}")
        #expect(alone.cluster == ClusterConfiguration())
        #expect(alone.cluster?.name == "longwire" && alone.cluster?.partCount == 16 && alone.cluster?.listen == nil)
        #expect(alone.redis?.tls == RedisConfiguration.TLS() && alone.redis?.minReplicas == 1)
        let embedded = try read("{demo: true}")
        #expect(embedded.redis == nil && embedded.cluster == nil)
        let joined = try read(
            """
            {demo: true, store: {redis: {nodes: 'r:1', tls: false, minReplicas: 0}},
             cluster: {listen: '10.0.0.5:7100', secret: '\(Self.secret)'}}
            """)
        #expect(joined.cluster?.advertise == joined.cluster?.listen)
        #expect(joined.redis?.tls == nil)
        #expect(joined.warnings.contains { $0.contains("minReplicas is 0") })
    }

    @Test("the number of event loops is a separate key")
    func loops() throws {
        let configuration = try read("{demo: true, loops: 3, store: {redis: {nodes: 'r:1'}}, cluster: {parts: 256}}")
        #expect(configuration.loopCount == 3 && configuration.cluster?.partCount == 256)
    }

    private static func redis(_ text: String) -> String { "{demo: true, store: {redis: {nodes: 'r:1', \(text)}}}" }
    private static func cluster(_ text: String) -> String {
        "{demo: true, store: {redis: {nodes: 'r:1'}}, cluster: {\(text)}}"
    }

    static let wrong: [(text: String, path: String)] = [
        ("{demo: true, store: {redis: {}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: []}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['r']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['r:0']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['r:65536']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['redis://r:1']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['::1:6379']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: {nodes: ['r:1', 'r:1']}}}", "store.redis.nodes"),
        ("{demo: true, store: {redis: 'r:1'}}", "store.redis"),
        (redis("user: 'u'"), "store.redis.user"),
        (redis("user: 'a b', password: 'p'"), "store.redis.user"),
        (redis("password: ['a', 'b']"), "store.redis.password"),
        (redis("passwordFile: '/no/such'"), "store.redis.passwordFile"),
        (redis("tls: 'yes'"), "store.redis.tls"),
        (redis("tls: {caFile: '/no/such'}"), "store.redis.tls.caFile"),
        (redis("tls: {certificate: '/dev/null'}"), "store.redis.tls.key"),
        (redis("tls: {key: '/dev/null'}"), "store.redis.tls.certificate"),
        (redis("tls: {serverName: 'a b'}"), "store.redis.tls.serverName"),
        (redis("minReplicas: 6"), "store.redis.minReplicas"),
        (redis("replicas: 1"), "store.redis.replicas"),
        ("{demo: true, store: {durability: 'os', redis: {nodes: 'r:1'}}}", "store.durability"),
        ("{demo: true, loopTables: 'own', store: {redis: {nodes: 'r:1'}}}", "loopTables"),
        ("{demo: true, cluster: {}}", "cluster"),
        ("{demo: true, cluster: {name: 'x'}, store: {path: 'p'}}", "cluster"),
        (cluster("name: 'a b'"), "cluster.name"), (cluster("name: '{x}'"), "cluster.name"),
        (cluster("parts: 3"), "cluster.parts"), (cluster("parts: 512"), "cluster.parts"),
        (cluster("listen: 'off'"), "cluster.listen"), (cluster("listen: 'gw-1:7100'"), "cluster.listen"),
        (cluster("listen: '127.0.0.1:7100'"), "cluster.secretFile"),
        (cluster("listen: '127.0.0.1:7100', secret: 'short'"), "cluster.secret"),
        (cluster("listen: '0.0.0.0:7100', secret: '\(secret)'"), "cluster.advertise"),
        (cluster("listen: '[::]:7100', secret: '\(secret)'"), "cluster.advertise"),
        (cluster("listen: '[::]:7100', advertise: '0.0.0.0:7100', secret: '\(secret)'"), "cluster.advertise"),
        (cluster("listen: '127.0.0.1:7000', secret: '\(secret)'"), "cluster.listen"),
        (cluster("secret: '\(secret)'"), "cluster.secret"), (cluster("advertise: '10.0.0.1:1'"), "cluster.advertise"),
        (
            cluster("listen: '127.0.0.1:1', secret: '\(secret)', advertiseDevices: {plain: 'x'}"),
            "cluster.advertiseDevices.plain"
        ),
        (cluster("advertiseDevices: {plain: 'x:1'}"), "cluster.advertiseDevices"),
    ]

    @Test("a wrong value is refused under its key", arguments: wrong)
    func wrongValue(text: String, path: String) throws {
        let error = #expect(throws: ConfigurationError.self) { try read(text) }
        let paths = error?.problems.map(\.path) ?? []
        #expect(paths.contains(path), "\(error?.description ?? "")")
    }

    @Test("no error and no description shows the password or the secret")
    func secretsStayOut() throws {
        let error = #expect(throws: ConfigurationError.self) {
            try read(Self.cluster("listen: 'x', secret: 'hush hush'"))
        }
        #expect(error?.description.contains("hush") == false)
        var printed = ""
        dump(try read(Self.redis("password: 'hush-hush'")), to: &printed)
        #expect(!printed.contains("hush"))
    }
}
