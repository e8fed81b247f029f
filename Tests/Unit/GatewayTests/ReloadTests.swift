import Configuration
import Delivery
import Testing

@testable import Gateway

@Suite("Reload")
struct ReloadTests {
    private func read(_ text: String) throws -> GatewayConfiguration {
        try ConfigurationFile.read(Array(text.utf8), file: "f")
    }

    @Test("apps, credentials, hook and soft limits change at once; listeners, store and loops need a restart")
    func applied() throws {
        let old = try read("{demo: true, loops: 1}")
        let new = try read(
            """
            {demo: true, loops: 2, device: {listen: '127.0.0.1:9'}, admin: {listen: '127.0.0.1:10'},
             senders: {listen: 'off'}, store: {path: '/elsewhere', durability: 'os', backups: '/b'},
             apps: [\(ConfigurationFileTests.app)], log: {format: 'json', level: 'error'},
             limits: {windowMessages: 5, frameBytes: 65537, outboxBytes: 262145}}
            """)
        #expect(
            new.keysNeedingRestart(since: old) == [
                "device.listen", "senders.listen", "admin.listen", "store.path", "store.durability", "loops",
                "log.format", "limits.frameBytes", "limits.outboxBytes",
            ])
        let applied = new.applied(over: old)
        #expect(applied.keysNeedingRestart(since: old).isEmpty)
        #expect(applied.backupPath == "/b" && applied.storePath == old.storePath)
        #expect(applied.version == old.version + 1)
        #expect(applied.apps == new.apps)
        #expect(applied.logging == .init(format: .text, level: .error))
        #expect(applied.limits.shardLimits.window == 5)
        #expect(applied.limits.frameBytes == GatewayLimits().frameBytes)
        #expect(applied.loopCount == 1)
        #expect(applied.storePath == old.storePath)
    }

    @Test("the keys of Redis and the cluster need a restart")
    func cluster() throws {
        let old = try read("{demo: true, store: {redis: {nodes: 'a:1'}}}")
        let new = try read(
            """
            {demo: true, store: {redis: {nodes: ['a:1', 'b:2']}},
             cluster: {name: 'other', parts: 32, listen: '127.0.0.1:7100', advertiseDevices: {plain: 'a:7000'},
               secret: '0123456789abcdef0123456789abcdef'}}
            """)
        #expect(
            new.keysNeedingRestart(since: old) == [
                "store.redis", "cluster.name", "cluster.parts", "cluster.listen", "cluster.advertise",
                "cluster.advertiseDevices", "cluster.secretFile",
            ])
        #expect(new.applied(over: old).keysNeedingRestart(since: old).isEmpty)
        let embedded = try read("{demo: true}")
        #expect(new.keysNeedingRestart(since: embedded) == ["store.redis"])
        #expect(new.applied(over: embedded).cluster == nil)
    }

    @Test("a reloadable limit is checked against limits that need a restart")
    func relationsInForce() throws {
        let old = try read("{demo: true}")
        let new = try read("{demo: true, limits: {windowBytes: 1048576, outboxBytes: 4194304}}")
        let error = #expect(throws: ConfigurationError.self) { try new.reloaded(over: old) }
        #expect(error?.description.contains("limits.windowBytes: 1048576 with frameBytes") == true)
        #expect(error?.description.contains("that only a restart changes") == true)
        #expect(try new.reloaded(over: new).limits == new.limits)
    }

    @Test("a TLS listener loads new files and keeps its address; a new listener needs a restart")
    func tlsListener() {
        var old = GatewayConfiguration()
        var new = old
        let address = ListenAddress(host: "::1", port: 1)
        new.device.tls = .init(address: ListenAddress(host: "::1", port: 2), certificateFile: "b", keyFile: "b")
        #expect(new.applied(over: old).device.tls == nil)
        #expect(new.keysNeedingRestart(since: old) == ["device.tls.listen"])
        old.device.tls = .init(address: address, certificateFile: "a", keyFile: "a")
        #expect(new.applied(over: old).device.tls == .init(address: address, certificateFile: "b", keyFile: "b"))
    }
}
