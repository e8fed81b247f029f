import Testing

@testable import Gateway

@Suite("Reload")
struct ReloadTests {
    private func read(_ text: String) throws -> GatewayConfiguration {
        try ConfigurationFile.read(Array(text.utf8), file: "f")
    }

    @Test("apps, credentials, hook and soft limits change; listeners, store and loops wait for a restart")
    func applied() throws {
        let old = try read("{demo: true, loops: 1}")
        let new = try read(
            """
            {demo: true, loops: 2, device: {listen: '127.0.0.1:9'}, admin: {listen: '127.0.0.1:10'},
             senders: {listen: 'off'}, store: {path: '/elsewhere', durability: 'os'},
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
        #expect(applied.version == old.version + 1)
        #expect(applied.apps == new.apps)
        #expect(applied.logging == .init(format: .text, level: .error))
        #expect(applied.limits.shardLimits.window == 5)
        #expect(applied.limits.frameBytes == GatewayLimits().frameBytes)
        #expect(applied.loopCount == 1)
        #expect(applied.storePath == old.storePath)
    }

    @Test("a TLS listener takes new files and keeps its address; one that appears waits")
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

@Suite("Generated credentials")
struct GeneratedCredentialsTests {
    private func complete(_ folder: String, demo: Bool) throws -> (GatewayConfiguration, GeneratedCredentials) {
        var configuration = GatewayConfiguration()
        configuration.storePath = folder
        configuration.usesDemoApp = demo
        var random = SystemRandomNumberGenerator()
        let generated = try GeneratedCredentials.complete(&configuration, random: &random)
        return (configuration, generated)
    }

    @Test("the demo app is made once, kept for its owner only, and found again")
    func demo() throws {
        let folder = TemporaryFolder()
        let (configuration, first) = try complete(folder.path, demo: true)
        var demo = try #require(first.demo)
        #expect(configuration.app(id: demo.appID)?.masterSecrets == [demo.masterSecret])
        #expect(configuration.credential(bearing: demo.adminToken.bytes)?.may(.admin) == true)
        #expect(try !FileText.read("\(folder.path)/demo.json", limit: 10_000).isReadableByOthers)
        demo.deviceAddress = "127.0.0.1:7000"
        try demo.save(in: folder.path)
        let (_, second) = try complete(folder.path, demo: true)
        #expect(second.demo == demo)
        #expect(second.adminToken == demo.adminToken)
        #expect(folder.names == ["demo.json"])
    }

    @Test("without credentials the admin listener gets one token that stays")
    func adminToken() throws {
        let folder = TemporaryFolder()
        let first = try complete(folder.path, demo: false).1
        #expect(first.demo == nil)
        #expect(first.adminToken != nil)
        #expect(try complete(folder.path, demo: false).1 == first)
        #expect(folder.names == ["admin-token"])
    }

    @Test("a damaged file is refused, not replaced", arguments: ["demo.json", "admin-token"])
    func damaged(name: String) throws {
        let folder = TemporaryFolder()
        folder.write(name, "?")
        #expect(throws: ConfigurationError.self) { try complete(folder.path, demo: name == "demo.json") }
        #expect(try FileText.read("\(folder.path)/\(name)", limit: 10).bytes == [UInt8(ascii: "?")])
    }

    @Test("a data folder that cannot be made is named")
    func noFolder() throws {
        let folder = TemporaryFolder()
        let file = folder.write("file", "")
        let error = #expect(throws: ConfigurationError.self) { try complete(file, demo: true) }
        #expect(error?.description.contains(file) == true)
    }
}

@Suite("Command line of longwired")
struct LongwiredArgumentsTests {
    @Test("what is asked for is understood")
    func understood() throws {
        #expect(try LongwiredArguments([]).action == .run)
        let check = try LongwiredArguments(["--check", "--config", "f"])
        #expect(check.action == .check)
        #expect(check.configurationFile == "f")
        #expect(try LongwiredArguments(["--config=f"]).configurationFile == "f")
        #expect(try LongwiredArguments(["--check", "--help"]).action == .help)
        #expect(try LongwiredArguments(["--version"]).action == .version)
        #expect(try LongwiredArguments(["--accept-clock"]).acceptsClock)
    }

    @Test(
        "what is not known is a usage error",
        arguments: [["x"], ["--confg", "f"], ["--config"], ["--config="], ["-c", "a", "-c", "b"]])
    func notUnderstood(arguments: [String]) {
        #expect(throws: LongwiredArguments.UsageError.self) { try LongwiredArguments(arguments) }
    }

    @Test("the help names every option")
    func help() {
        for option in ["--config", "--check", "--accept-clock", "--help", "--version"] {
            #expect(LongwiredArguments.helpText.contains(option))
        }
    }
}

@Suite("Hook URL and secret")
struct HookURLTests {
    @Test(
        "https anywhere and http on this machine",
        arguments: [
            "https://example.com/a?b=c", "https://10.0.0.1:8443", "http://127.0.0.1:9/x", "http://localhost/",
            "http://[::1]:80/", "HTTP://127.8.8.8",
        ])
    func allowed(text: String) throws {
        #expect(try HookURL(text).text == text)
    }

    static let refused: [(text: String, refusal: HookURL.Refusal)] = [
        ("", .malformed), ("example.com", .malformed), ("ftp://127.0.0.1", .malformed), ("https://", .malformed),
        ("https:///path", .malformed), ("https://a b", .malformed), ("https://a\\b", .malformed),
        ("https://a#f", .malformed), ("https://a:0", .malformed), ("https://a:x", .malformed),
        ("https://[::1", .malformed), ("https://user@host", .hasCredentials), ("http://a:b@127.0.0.1", .hasCredentials),
        ("http://example.com", .plaintextBeyondLoopback), ("http://127.0.0.1.example.com", .plaintextBeyondLoopback),
        ("http://0.0.0.0", .plaintextBeyondLoopback), ("http://[::2]/", .plaintextBeyondLoopback),
        ("http://2130706433/", .plaintextBeyondLoopback),
    ]

    @Test("all else is refused", arguments: refused)
    func refused(text: String, refusal: HookURL.Refusal) {
        #expect(throws: refusal) { try HookURL(text) }
    }

    @Test("a secret is whsec_ and Base64 of 24 to 64 bytes")
    func secret() {
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")?.key == Array(0..<24))
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGA==")?.key == Array(0..<25))
        #expect(HookSecret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGA")?.key == Array(0..<25))
        for text in [
            "", "whsec_", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "whsec_AAEC", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY?",
        ] {
            #expect(HookSecret(text) == nil)
        }
    }
}
