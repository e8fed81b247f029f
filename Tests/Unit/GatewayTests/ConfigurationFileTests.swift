import Configuration
import Delivery
import Glibc
import PushAPI
import Testing

@testable import Gateway

@Suite("Configuration file")
struct ConfigurationFileTests {
    static let app = "{appId: 'a1', appKey: 'k', appSecret: 'secret-one', masterSecret: 'master-one'}"

    private func read(_ text: String, file: String = "/etc/longwire/longwire.json5") throws -> GatewayConfiguration {
        try ConfigurationFile.read(Array(text.utf8), file: file)
    }

    private func problems(_ text: String) -> [String] {
        do throws(ConfigurationError) {
            _ = try ConfigurationFile.read(Array(text.utf8), file: "f")
            return []
        } catch {
            return error.problems.map(\.description)
        }
    }

    @Test("without a file all listeners are on loopback, with the demo app")
    func defaults() throws {
        let configuration = try ConfigurationFile.load(nil)
        #expect(configuration.device.plain?.description == "127.0.0.1:7000")
        #expect(configuration.senders.plain?.description == "127.0.0.1:7001")
        #expect(configuration.http.plain?.description == "127.0.0.1:7080")
        #expect(configuration.admin.plain?.description == "127.0.0.1:7081")
        #expect(configuration.storePath == "longwire-data")
        #expect(configuration.usesDemoApp)
        #expect(configuration.durability == .fsync)
        #expect(configuration.loopCount >= 1)
    }

    private static func receiptApp(_ more: String, masterSecret: String = "['new-master', 'old-master']") -> String {
        "{apps: [{appId: 'a1', appKey: 'k', appSecret: 'secret-one', masterSecret: \(masterSecret), \(more)}]}"
    }

    @Test("receipts in Getui's format are a webhook of the events, signed with the newest masterSecret")
    func getuiReceipts() throws {
        let url = "url: 'https://b.example/receipt'"
        let plain = try read(Self.receiptApp("getuiReceipts: {\(url)}")).apps[0]
        let hook = try #require(plain.events?.webhook)
        #expect(hook.form == .getuiReceipts(masterSecret: Secret("new-master")) && hook.secrets.isEmpty)
        #expect(hook.batchJobs == 100 && hook.timeoutSeconds == 10 && plain.events?.limits == FeedLimits())
        let bounded = try read(
            Self.receiptApp("events: {maxItems: 7}, getuiReceipts: {\(url), batchItems: 5, timeoutSeconds: 3}")
        ).apps[0]
        #expect(bounded.events?.limits.count == 7 && bounded.events?.webhook?.batchJobs == 5)
        #expect(bounded.events?.webhook?.timeoutSeconds == 3 && bounded.upstream == nil)
        // A changed secret is another webhook, so a page in flight is signed again.
        let changed = try read(Self.receiptApp("getuiReceipts: {\(url)}", masterSecret: "'old-master'")).apps[0]
        #expect(changed.events?.webhook != hook && changed.events?.webhook?.url == hook.url)
        #expect(try read(Self.receiptApp("events: {}")).apps[0].events?.webhook == nil)
    }

    @Test("receipts in Getui's format are refused beside the events' own webhook, without an address, or with a secret")
    func refusedReceipts() {
        let secret = "whsec_" + String(repeating: "QUJD", count: 10)
        let receipts = "getuiReceipts: {url: 'https://b.example/r'}"
        for (more, word) in [
            ("events: {webhook: {url: 'https://b.example/e', secret: '\(secret)'}}, \(receipts)", "one reader"),
            ("getuiReceipts: {}", "missing"), ("getuiReceipts: {url: 'http://b.example/r'}", "https"),
            ("getuiReceipts: {url: 'https://b.example/r', secret: '\(secret)'}", "secret"),
            ("getuiReceipts: {url: 'https://b.example/r', batchItems: 1001}", "batchItems"),
        ] {
            let found = problems(Self.receiptApp(more))
            #expect(found.count == 1 && found[0].contains(word), "\(more): \(found)")
        }
    }

    @Test("every key is read")
    func everyKey() throws {
        let folder = TemporaryFolder()
        for name in ["cert.pem", "key.pem"] { folder.write(name, "x") }
        try folder.writeCertificate("ca.pem", key: "ca.key")
        folder.write("token", "0123456789abcdef\n")
        let secret = "whsec_" + String(repeating: "QUJD", count: 10)
        let configuration = try read(
            """
            {
              device: {listen: '0.0.0.0:7000', allowPlaintextRegistration: true,
                       tls: {listen: '[::]:7443', certificate: 'cert.pem', key: 'key.pem'}},
              senders: {listen: 'off'},
              http: {listen: 'off', tls: {listen: '0.0.0.0:8443', certificate: 'cert.pem', key: 'key.pem'}},
              admin: {listen: '0.0.0.0:7081'},
              store: {path: 'data', durability: 'os'},
              loops: 3,
              limits: {windowMessages: 8, journalBytes: 16777216, sessionlessDeviceLifetimeSeconds: 90},
              apps: [{appId: 'a1', appKey: 'k', appSecret: ['secret-new', 'secret-old'], masterSecret: 'master-one',
                      apns: {topic: 'com.example.app', template: {transmission: 'members', wake: true,
                        notifications: true, mutableContent: true, sound: '', badge: '+1', category: 'c',
                        threadId: 't', interruptionLevel: 'time-sensitive'}}, queue: {messages: 5, bytes: 65536, overflow: 'dropOldest'},
                      maxAttempts: 2}],
              credentials: [{name: 'sender', tokenFile: 'token', apps: ['a1'], may: ['handoff', 'trace']}],
              hook: {url: 'https://example.com/hook', secret: '\(secret)', authorities: 'ca.pem', batchJobs: 7,
                     timeoutSeconds: 3},
              log: {format: 'json', level: 'debug'},
            }
            """, file: "\(folder.path)/c.json5")
        #expect(configuration.device.plain?.description == "0.0.0.0:7000")
        #expect(configuration.device.tls?.address.description == "[::]:7443")
        #expect(configuration.device.tls?.certificateFile == "\(folder.path)/cert.pem")
        #expect(configuration.allowPlaintextRegistration)
        #expect(configuration.senders.plain == nil)
        #expect(configuration.http.plain == nil)
        #expect(configuration.http.tls?.keyFile == "\(folder.path)/key.pem")
        #expect(configuration.storePath == "\(folder.path)/data")
        #expect(configuration.durability == .os)
        #expect(configuration.loopCount == 3)
        #expect(configuration.limits.shardLimits.window == 8)
        #expect(configuration.limits.journalBytes == 16_777_216)
        #expect(configuration.limits.shardLimits.sessionlessDeviceLifetime == 90_000)
        let app = try #require(configuration.app(id: "a1"))
        #expect(app.appSecrets.map(\.exposed) == ["secret-new", "secret-old"])
        #expect(app.masterSecrets.map(\.exposed) == ["master-one"])
        #expect(app.apnsTopic == "com.example.app")
        var template = APNsTemplate()
        (template.transmission, template.wakesApp, template.showsNotifications) = (.members, true, true)
        (template.alertsAreMutable, template.sound, template.badge) = (true, "", .add(1))
        (template.category, template.threadID, template.interruptionLevel) = ("c", "t", .timeSensitive)
        #expect(app.apnsTemplate == template)
        #expect(app.queuedMessageLimit == 5)
        #expect(app.queuedByteLimit == 65_536)
        #expect(app.overflowPolicy == .dropOldest)
        #expect(app.maxAttempts == 2)
        let credential = try #require(configuration.credential(bearing: "0123456789abcdef".utf8))
        #expect(credential.name == "sender")
        #expect(credential.may(.handoff) && credential.may(.trace) && !credential.may(.admin))
        #expect(credential.sees(appID: "a1") && !credential.sees(appID: "a2"))
        #expect(configuration.credential(bearing: "0123456789abcdeX".utf8) == nil)
        #expect(configuration.hook?.url.text == "https://example.com/hook")
        #expect(configuration.hook?.batchJobs == 7)
        #expect(configuration.hook?.timeoutSeconds == 3)
        #expect(configuration.hook?.authoritiesFile == "\(folder.path)/ca.pem")
        #expect(configuration.logging == .init(format: .json, level: .debug))
        #expect(configuration.warnings.contains { $0.contains("durability") })
    }

    @Test("a file of authorities without a certificate is refused", arguments: ["junk.pem", "empty.pem", "ca.key"])
    func authorities(file: String) throws {
        let folder = TemporaryFolder()
        folder.write("junk.pem", "junk")
        folder.write("empty.pem", "")
        try folder.writeCertificate("ca.pem", key: "ca.key")
        try folder.writeCertificate("other.pem", key: "other.key")
        let secret = "whsec_" + String(repeating: "QUJD", count: 10)
        func hook(_ name: String) -> String {
            "{url: 'https://b.example/r', secret: '\(secret)', authorities: '\(name)'}"
        }
        func app(_ more: String) -> String { "\(Self.app.dropLast()), \(more)}" }
        func found(_ text: String) -> [String] {
            do throws(ConfigurationError) {
                _ = try ConfigurationFile.read(Array(text.utf8), file: "\(folder.path)/c.json5")
                return []
            } catch { return error.problems.map(\.description) }
        }
        for (key, text) in [
            ("hook.authorities", { "{apps: [], hook: \(hook($0))}" }),
            ("events.webhook.authorities", { "{apps: [\(app("events: {webhook: \(hook($0))}"))]}" }),
            ("upstream.webhook.authorities", { "{apps: [\(app("upstream: {webhook: \(hook($0))}"))]}" }),
            (
                "store.redis.tls.caFile",
                { "{apps: [], store: {redis: {nodes: ['127.0.0.1:1'], tls: {caFile: '\($0)'}}}}" }
            ),
        ] as [(String, (String) -> String)] {
            #expect(found(text("ca.pem")).isEmpty)
            let problems = found(text(file))
            #expect(problems.count == 1, "\(problems)")
            #expect(problems.allSatisfy { $0.contains(key) && $0.contains("\(folder.path)/\(file) holds no usable") })
        }
        let redis = "{apps: [], store: {redis: {nodes: ['127.0.0.1:1'], tls: {certificate: 'ca.pem', key: '"
        #expect(found(redis + "ca.key'}}}}").isEmpty)
        #expect(found(redis + "other.key'}}}}").count == 1)
    }

    @Test("all errors are reported at once, each with its place, its value and the allowed values")
    func allMistakes() {
        let found = problems(
            """
            {
              lops: 2,
              loops: 'two',
              store: {durability: 'maybe'},
              limits: {windowMessages: 0, windowMesages: 1},
              apps: [{appId: 'a b', appKey: 'k', appSecret: 'secret-one', masterSecret: 'short'}],
            }
            """)
        #expect(found.count == 7, "\(found)")
        #expect(
            found.contains { $0.hasPrefix("2:3: lops: unknown key; did you mean loops? allowed here: admin, apps,") })
        #expect(found.contains("3:3: loops: \"two\" is not allowed; an integer from 1 to 256"))
        #expect(found.contains("4:11: store.durability: \"maybe\" is not allowed; one of \"fsync\", \"os\""))
        #expect(found.contains("5:12: limits.windowMessages: 0 is not allowed; an integer from 1 to 1024"))
        #expect(found.contains { $0.contains("limits.windowMesages: unknown key; did you mean windowMessages?") })
        #expect(found.contains { $0.contains("apps[0].appId: \"a b\" is not allowed; 1 to 64 of the characters") })
        #expect(found.contains { $0.contains("apps[0].masterSecret: the value is not allowed (5 bytes, not shown)") })
    }

    private static func template(_ text: String) -> String {
        "{apps: [{appId: 'a1', appKey: 'k', appSecret: 'secret-one', masterSecret: 'master-one', "
            + "apns: {template: {\(text)}}}]}"
    }

    static let wrong: [(text: String, path: String)] = [
        (template("transmission: 'all'"), "apps[0].apns.template.transmission"),
        (template("badge: 'one'"), "apps[0].apns.template.badge"), (template("wake: 1"), "apps[0].apns.template.wake"),
        (template("sound: '\(String(repeating: "s", count: 65))'"), "apps[0].apns.template.sound"),
        (template("interruptionLevel: 'loud'"), "apps[0].apns.template.interruptionLevel"),
        (template("alert: {}"), "apps[0].apns.template.alert"),
        ("[]", ""), ("{", ""), ("{}", "apps"), ("{apps: {}}", "apps"),
        ("{apps: [1]}", "apps[0]"),
        ("{apps: [{}]}", "apps[0].appId"), ("{apps: [\(app), \(app)]}", "apps"),
        ("{demo: true, device: {listen: '127.0.0.1'}}", "device.listen"),
        ("{demo: true, device: {listen: 'example.com:1'}}", "device.listen"),
        ("{demo: true, device: {listen: '127.0.0.1:65536'}}", "device.listen"),
        ("{demo: true, device: {listen: '::1:7000'}}", "device.listen"),
        // The address contains a zero byte, at which the system's parser would stop.
        (#"{demo: true, device: {listen: '[::1\0.example]:7000'}}"#, "device.listen"),
        ("{demo: true, device: {listen: 'off'}}", "device.listen"),
        ("{demo: true, device: {tls: {listen: '[::1]:1'}}}", "device.tls.certificate"),
        (
            "{demo: true, device: {tls: {listen: '[::1]:1', certificate: '/no/such', key: '/no/such'}}}",
            "device.tls.key"
        ),
        ("{demo: true, admin: {listen: 'off'}}", "admin.listen"),
        ("{demo: true, admin: {listen: '0.0.0.0:7081'}}", "admin.listen"),
        (
            "{demo: true, admin: {tls: {listen: '0.0.0.0:1', certificate: '/dev/null', key: '/dev/null'}}}",
            "admin.tls.listen"
        ),
        ("{demo: true, senders: {tls: {listen: '[::1]:1'}}}", "senders.tls.key"),
        ("{demo: true, admin: {listen: '127.0.0.1:7080'}}", "admin.listen"),
        (
            "{demo: true, limits: {heartbeatMinimumSeconds: 60, heartbeatMaximumSeconds: 50}}",
            "limits.heartbeatMinimumSeconds"
        ),
        ("{demo: true, limits: {heartbeatDefaultSeconds: 10}}", "limits.heartbeatDefaultSeconds"),
        ("{demo: true, limits: {outboxBytes: 65536}}", "limits.outboxBytes"),
        ("{demo: true, limits: {windowBytes: 196609}}", "limits.windowBytes"),
        ("{demo: true, limits: {windowBytes: 16777216, outboxBytes: 16777216}}", "limits.windowBytes"),
        ("{demo: true, limits: {connections: 1.5}}", "limits.connections"),
        ("{demo: true, hook: {url: 'http://example.com', secret: 'whsec_QUJD'}}", "hook.url"),
        ("{demo: true, hook: {url: 'https://example.com', secret: 'whsec_QUJD'}}", "hook.secret"),
        ("{demo: true, hook: {url: 'https://example.com'}}", "hook.secret"),
        ("{demo: true, hook: {url: 'https://example.com', secretFile: '/no/such'}}", "hook.secretFile"),
        ("{demo: true, hook: {url: 'https://u:p@example.com', secret: 'x'}}", "hook.url"),
        ("{demo: true, credentials: [{name: 'n', token: '0123456789abcdef', may: ['fly']}]}", "credentials[0].may"),
        ("{demo: true, credentials: [{name: 'n', token: '0123456789abcdef'}]}", "credentials[0].may"),
        ("{demo: true, credentials: [{name: 'n', token: 'short', may: 'admin'}]}", "credentials[0].token"),
        (
            "{demo: true, credentials: [{name: 'n', token: '0123456789abcdef', may: 'trace', apps: ['zz']}]}",
            "credentials[0].apps"
        ),
        (
            "{demo: true, credentials: [{name: 'n', token: 'x', tokenFile: 'y', may: 'trace'}]}",
            "credentials[0].tokenFile"
        ),
        ("{demo: true, log: {level: 'loud'}}", "log.level"), ("{demo: 1}", "demo"),
    ]

    @Test("a wrong value is refused under its key", arguments: wrong)
    func wrongValue(text: String, path: String) throws {
        let error = #expect(throws: ConfigurationError.self) { try read(text) }
        let paths = error?.problems.map(\.path) ?? []
        #expect(paths.contains(path), "\(error?.description ?? "")")
    }

    @Test("no error message shows a secret")
    func secretsStayOut() {
        let marker = "hush\u{7F}hush-hush-hush"
        let text = """
            {apps: [{appId: 'a1', appKey: 'k', appSecret: '\(marker)', masterSecret: ['\(marker)', 5]}],
             credentials: [{name: 'n', token: ['\(marker)'], may: 'admin'}], hook: {url: 'https://h', secret: '\(marker)'}}
            """
        let found = problems(text).joined(separator: "\n")
        #expect(found.contains("appSecret") && found.contains("masterSecret") && found.contains("hook.secret"))
        #expect(!found.contains("hush"))
    }

    @Test("a secret has a redacted description in every form of printing")
    func secretDescriptions() throws {
        let configuration = try read("{apps: [\(Self.app)]}")
        var printed = ""
        dump(configuration, to: &printed)
        printed += "\(configuration) \(String(reflecting: configuration))"
        #expect(!printed.contains("secret-one") && !printed.contains("master-one"))
    }

    @Test("an empty list of apps is valid, because the admin API creates apps")
    func noApps() throws {
        #expect(try read("{apps: []}").apps.isEmpty)
        #expect(problems("{}").contains { $0.contains("or give [] where the admin API makes them all") })
    }

    @Test("readable secrets cause a warning, inline and in files")
    func readableSecrets() throws {
        let folder = TemporaryFolder()
        folder.write("secret", "secret-one\n", mode: 0o644)
        let text = "{apps: [{appId: 'a1', appKey: 'k', appSecretFile: 'secret', masterSecret: 'master-one'}]}"
        let file = folder.write("c.json5", text, mode: 0o644)
        let configuration = try ConfigurationFile.load(file)
        #expect(configuration.apps[0].appSecrets == [Secret("secret-one")])
        #expect(configuration.warnings.count == 2)
        // The group may read a file of root, because administrators give secrets to services in this way.
        chmod(file, 0o640)
        chmod("\(folder.path)/secret", 0o640)
        #expect(try ConfigurationFile.load(file).warnings.count == (geteuid() == 0 ? 0 : 2))
        chmod(file, 0o600)
        chmod("\(folder.path)/secret", 0o600)
        #expect(try ConfigurationFile.load(file).warnings.isEmpty)
    }

    @Test("an unreadable file is named", arguments: ["/no/such/file", "/tmp"])
    func unreadable(path: String) {
        let error = #expect(throws: ConfigurationError.self) { try ConfigurationFile.load(path) }
        #expect(error?.description.hasPrefix("\(path): cannot be read: ") == true)
    }

    @Test("every limit accepts both ends of its range and has its default inside", arguments: LimitKey.all.map(\.name))
    func limitRanges(name: String) throws {
        let key = try #require(LimitKey.all.first { $0.name == name })
        #expect(key.range.contains(key.read(GatewayLimits())))
        for value in [key.range.lowerBound, key.range.upperBound] {
            var limits = GatewayLimits()
            key.write(&limits, value)
            #expect(key.read(limits) == value)
            // Reading the shards' limits never traps, whatever the file contains.
            _ = limits.shardLimits
        }
    }

    @Test("the defaults respect the relations between limits, and each key is independent")
    func limitTable() {
        #expect(GatewayLimits().brokenRelations().isEmpty)
        #expect(Set(LimitKey.all.map(\.name)).count == LimitKey.all.count)
        for key in LimitKey.all {
            var limits = GatewayLimits()
            let changed = key.read(limits) == key.range.lowerBound ? key.range.upperBound : key.range.lowerBound
            key.write(&limits, changed)
            let others = LimitKey.all.filter { $0.name != key.name && $0.read(limits) != $0.read(GatewayLimits()) }
            #expect(others.isEmpty, "\(key.name) also changes \(others.map(\.name))")
        }
    }
}
