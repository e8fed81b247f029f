internal import Quotas
package import Configuration
internal import Cryptography
internal import Delivery
internal import EventLoops
internal import Glibc
internal import PushAPI
internal import Webhooks
internal import Wire

/// Reads the configuration file, JSON5, strictly, and reports every problem.
///
/// It writes no files, because `--check` uses it. `GeneratedCredentials` adds generated values afterwards.
package enum ConfigurationFile {
    /// The defaults without a file: loopback only, data in `./longwire-data`, the generated demo app.
    package static func defaults() -> GatewayConfiguration {
        var configuration = GatewayConfiguration()
        configuration.usesDemoApp = true
        configuration.loopCount = coreCount
        return configuration
    }

    /// Reads `path` and its secret files; `nil` returns the defaults.
    package static func load(_ path: String?) throws(ConfigurationError) -> GatewayConfiguration {
        guard let path else { return defaults() }
        let contents: FileText.Contents
        do {
            contents = try FileText.read(path, limit: ConfigurationLimits.fileByteCount)
        } catch {
            let problem = ConfigurationProblem(path: "", position: nil, text: "cannot be read: \(error.reason)")
            throw ConfigurationError(file: path, problems: [problem])
        }
        return try read(contents.bytes, file: path, isReadableByOthers: contents.isReadableByOthers)
    }

    /// Reads the text of a configuration file; paths in it are relative to the folder of `file`.
    package static func read(
        _ bytes: [UInt8], file: String, isReadableByOthers: Bool = false
    ) throws(ConfigurationError) -> GatewayConfiguration {
        let problems = ConfigurationProblems()
        let object = try ConfigurationObject.root(bytes, file: file, problems: problems)
        let reader = ConfigurationReader(file: file, problems: problems, isReadableByOthers: isReadableByOthers)
        let configuration = reader.read(object)
        guard problems.all.isEmpty else {
            throw ConfigurationError(file: file, problems: problems.sorted)
        }
        return configuration
    }

    static var coreCount: Int { max(1, min(256, Int(sysconf(CInt(_SC_NPROCESSORS_ONLN))))) }
}

struct ConfigurationReader {
    let file: String
    let problems: ConfigurationProblems
    let isReadableByOthers: Bool

    func read(_ root: ConfigurationObject) -> GatewayConfiguration {
        var configuration = GatewayConfiguration()
        configuration.file = file
        configuration.storePath = resolved("longwire-data")
        configuration.loopCount = ConfigurationFile.coreCount
        var secrets = SecretReader(folder: folder, problems: problems)

        readListeners(root, into: &configuration)
        let store = root.object("store")
        if let store {
            let path = store.string("path", allowed: "a folder's path, 1 to 1024 bytes") {
                1...1_024 ~= $0.utf8.count && !$0.contains("\0")
            }
            if let path { configuration.storePath = resolved(path) }
            let backups = store.string("backups", allowed: "a folder's path, 1 to 1024 bytes") {
                1...1_024 ~= $0.utf8.count && !$0.contains("\0")
            }
            configuration.backupPath = backups.map(resolved)
            configuration.durability = store.choice("durability", GatewayConfiguration.Durability.self) ?? .fsync
        }
        if let loops = root.integer("loops", in: 1...256) { configuration.loopCount = Int(loops) }
        configuration.loopTables = root.choice("loopTables", GatewayConfiguration.LoopTables.self) ?? .shared
        readCluster(root, store: store, &secrets, into: &configuration)
        store?.finish()
        if let limits = root.object("limits") { readLimits(limits, into: &configuration) }
        configuration.usesDemoApp = root.boolean("demo") ?? false
        configuration.apps = (root.objects("apps", limit: ConfigurationLimits.appCount) ?? []).compactMap {
            readApp($0, &secrets)
        }
        checkApps(root, configuration)
        configuration.credentials =
            (root.objects("credentials", limit: ConfigurationLimits.credentialCount) ?? []).compactMap {
                readCredential($0, &secrets, apps: configuration)
            }
        checkCredentials(root, configuration)
        checkSecrets(root, &configuration)
        if let hook = root.object("hook") {
            let channels = readChannels(hook, "channels", of: VendorChannel.allCases)
            configuration.hook = readHook(hook, &secrets)
            if let channels { configuration.hook?.channels = channels }
        }
        if let log = root.object("log") {
            configuration.logging.format = log.choice("format", LogFormat.self) ?? .text
            configuration.logging.level = log.choice("level", LogLevel.self) ?? .info
            log.finish()
        }
        root.finish()
        checkAddresses(configuration)

        if secrets.hasInline, isReadableByOthers {
            configuration.warnings.append(
                "the configuration holds secrets and others can read it; chmod 600, or keep secrets in separate files"
            )
        }
        configuration.warnings += secrets.warnings
        if configuration.durability == .os {
            configuration.warnings.append("store.durability is \"os\": a power cut can lose accepted messages")
        }
        if configuration.redis?.minReplicas == 0 {
            configuration.warnings.append(
                "store.redis.minReplicas is 0: a lost server can take accepted messages with it")
        }
        return configuration
    }

    // MARK: Listeners

    private static let rangeLimit = 64

    private func readListeners(_ root: ConfigurationObject, into configuration: inout GatewayConfiguration) {
        if let device = root.object("device") {
            configuration.device = readListener(device, default: configuration.device.plain)
            configuration.allowPlaintextRegistration = device.boolean("allowPlaintextRegistration") ?? false
            if let webSocket = device.object("webSocket") { configuration.webSockets = readWebSockets(webSocket) }
            device.finish()
        }
        if let http = root.object("http") {
            configuration.http = readListener(http, default: configuration.http.plain)
            configuration.forwarded.proxies = readRanges(http, "proxies")
            if let header = http.choice("proxyHeader", ForwardedClients.Header.self) {
                configuration.forwarded.header = header
            }
            http.finish()
        }
        if let senders = root.object("senders") {
            configuration.senders = readListener(senders, default: configuration.senders.plain, mayBeOff: true)
            senders.finish()
        }
        if let admin = root.object("admin") {
            configuration.admin = readListener(admin, default: configuration.admin.plain)
            admin.finish()
        }
    }

    private static let originLimit = 64

    private func readWebSockets(_ object: ConfigurationObject) -> GatewayConfiguration.WebSockets {
        var webSockets = GatewayConfiguration.WebSockets()
        webSockets.isEnabled = object.boolean("enabled") ?? true
        for text in object.strings("origins", limit: Self.originLimit) ?? [] {
            if let origin = Self.origin(text) {
                webSockets.origins.append(origin)
            } else {
                object.report(
                    "origins",
                    "\"\(text.prefix(64))\" is no origin, as \"https://app.example.com\": scheme, host and port alone")
            }
        }
        object.finish()
        return webSockets
    }

    /// Parses an origin in the form of the `Origin` header: lower case and without a path.
    private static func origin(_ text: String) -> WebOrigin? {
        guard let scheme = ["https://", "http://"].first(where: { text.hasPrefix($0) }) else { return nil }
        let place = text.dropFirst(scheme.count)
        let isPlain =
            1...255 ~= place.utf8.count
            && place.utf8.allSatisfy {
                switch $0 {
                case 0x30...0x3A, 0x61...0x7A, UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "["),
                    UInt8(ascii: "]"):
                    true
                default: false
                }
            }
        return isPlain ? WebOrigin(text) : nil
    }

    private func readListener(
        _ object: ConfigurationObject, default address: ListenAddress?, mayBeOff: Bool = false
    ) -> GatewayConfiguration.Listener {
        var listener = GatewayConfiguration.Listener(plain: readAddress(object, default: address))
        listener.balancers = readRanges(object, "balancers")
        if let tls = object.object("tls") {
            let address = readAddress(tls, default: nil, canBeOff: false)
            let certificate = readFilePath(tls, "certificate"), key = readFilePath(tls, "key")
            for required in ["listen", "certificate", "key"] where !tls.has(required) {
                tls.report(required, "missing; tls needs listen, certificate and key")
            }
            let authorities = readFilePath(tls, "clientAuthorities")
            let names = tls.clientNames()
            tls.finish()
            if let address, let certificate, let key {
                listener.tls = GatewayConfiguration.TLSListener(
                    address: address, certificateFile: certificate, keyFile: key, clientAuthoritiesFile: authorities,
                    clientNames: names)
            }
        }
        if listener.plain == nil, !mayBeOff, !object.has("tls") {
            object.report("listen", "\"off\" is not allowed without tls: nothing would listen")
        }
        return listener
    }

    private func readRanges(_ object: ConfigurationObject, _ key: String) -> [AddressRange] {
        (object.strings(key, limit: Self.rangeLimit) ?? []).compactMap { text in
            let range = AddressRange(text)
            if range == nil {
                object.report(key, "\"\(text)\" is no address or network, as \"10.0.0.5\" or \"10.0.0.0/24\"")
            }
            return range
        }
    }

    func readAddress(
        _ object: ConfigurationObject, default address: ListenAddress?, canBeOff: Bool = true
    ) -> ListenAddress? {
        let allowed = "\"ADDRESS:PORT\" with a numeric address, as \"0.0.0.0:7000\" or \"[::]:7000\""
        let text = object.string("listen", allowed: canBeOff ? allowed + ", or \"off\"" : allowed) {
            ListenAddress($0) != nil || canBeOff && $0 == "off"
        }
        guard let text else { return address }
        return ListenAddress(text)
    }

    func readFilePath(_ object: ConfigurationObject, _ key: String) -> String? {
        guard let text = object.string(key, allowed: "a file's path", where: { !$0.isEmpty && !$0.contains("\0") })
        else { return nil }
        let path = resolved(text)
        guard access(path, R_OK) == 0 else {
            object.report(key, "\(path) cannot be read: \(String(cString: strerror(errno)))")
            return nil
        }
        return path
    }

    /// Reads the path of a PEM file of authorities, and reports a file without a certificate.
    ///
    /// Its first use may be much later, and a failure there would stop a working hook.
    func readAuthorities(_ object: ConfigurationObject, _ key: String) -> String? {
        guard let path = readFilePath(object, key) else { return nil }
        do throws(TLSFailure) {
            _ = try TLSContext(trusting: .certificates(path: path))
            return path
        } catch {
            object.report(key, error.description)
            return nil
        }
    }

    private func checkAddresses(_ configuration: GatewayConfiguration) {
        var owners: [ListenAddress: String] = [:]
        let all: [(String, ListenAddress?)] = GatewayConfiguration.listeners.flatMap { name, path in
            let listener = configuration[keyPath: path]
            return [("\(name).listen", listener.plain), ("\(name).tls.listen", listener.tls?.address)]
        }
        for (key, address) in all + [("cluster.listen", configuration.cluster?.listen)] {
            guard let address, address.port != 0 else { continue }
            if let owner = owners[address] {
                // SO_REUSEPORT would allow both binds, and the kernel would distribute connections between them at random.
                problems.report(key, at: nil, "\(address) is not allowed; \(owner) listens there")
            }
            owners[address] = key
        }
    }

    // MARK: Limits

    private func readLimits(_ object: ConfigurationObject, into configuration: inout GatewayConfiguration) {
        for key in LimitKey.all {
            if let value = object.integer(key.name, in: key.range) { key.write(&configuration.limits, value) }
        }
        configuration.exemptAddresses = readRanges(object, "exemptAddresses")
        object.finish()
        for (key, rule) in configuration.limits.brokenRelations() { object.report(key, rule) }
    }

    // MARK: Apps

    /// Reads an app of the admin API, by the same rules as an app of the file.
    static func app(_ members: [JSON5Member]) -> (app: AppConfiguration?, problems: [ConfigurationProblem]) {
        let problems = ConfigurationProblems()
        let reader = ConfigurationReader(file: "", problems: problems, isReadableByOthers: false)
        var secrets = SecretReader(folder: "", problems: problems)
        let object = ConfigurationObject(
            members, path: "", position: TextPosition(line: 1, column: 1), problems: problems)
        let app = reader.readApp(object, &secrets)
        let shown = problems.all.map { ConfigurationProblem(path: $0.path, position: nil, text: $0.text) }
        guard let app, !app.appSecrets.isEmpty, !app.masterSecrets.isEmpty else { return (nil, shown) }
        return (app, shown)
    }

    private func readApp(_ object: ConfigurationObject, _ secrets: inout SecretReader) -> AppConfiguration? {
        let appID = object.string("appId", allowed: Self.appIDRule, where: Self.isAppID)
        let appKey = object.string("appKey", allowed: "1 to 128 visible ASCII characters") {
            SecretReader.isVisible($0, 1...128)
        }
        let appSecrets = secrets.read(object, "appSecret", 8...256)
        let masterSecrets = secrets.read(object, "masterSecret", 8...256)
        for key in ["appId", "appKey"] where !object.has(key) { object.report(key, "missing") }

        var app = AppConfiguration(
            appID: appID ?? "", appKey: appKey ?? "", appSecrets: appSecrets ?? [], masterSecrets: masterSecrets ?? [])
        if let apns = object.object("apns") {
            app.apnsTopic =
                apns.string("topic", allowed: "a bundle id, 1 to 255 visible ASCII characters") {
                    SecretReader.isVisible($0, 1...255)
                } ?? ""
            if let template = apns.object("template") { app.apnsTemplate = APNsTemplate(template) }
            apns.finish()
        }
        if let queue = object.object("queue") {
            if let count = queue.integer("messages", in: AppSettings.queuedMessageLimits) {
                app.queuedMessageLimit = Int(count)
            }
            if let count = queue.integer("bytes", in: 65_536...(1 << 30)) { app.queuedByteLimit = Int(count) }
            if let policy = queue.choice("overflow", OverflowName.self) { app.overflowPolicy = policy.policy }
            queue.finish()
        }
        if let push = object.object("push") { app.push = PushConfiguration(push) }
        if let quotas = object.object("quotas") { app.quotas = AppQuotas(quotas) }
        if let upstream = object.object("upstream") { app.upstream = readFeed(upstream, .upstream, &secrets) }
        if let events = object.object("events") { app.events = readFeed(events, .events, &secrets) }
        if let receipts = object.object("getuiReceipts") {
            readReceipts(receipts, beside: object, &secrets, into: &app)
        }
        if let count = object.integer("maxAttempts", in: 1...1_000) { app.maxAttempts = Int(count) }
        if let registration = object.object("registration") { readRegistration(registration, into: &app) }
        if let names = object.strings("deviceMay", limit: DevicePermission.allCases.count, mayBeEmpty: true) {
            app.deviceMay = Set(names.compactMap { DevicePermission(rawValue: $0) })
            if app.deviceMay.count < names.count {
                object.report("deviceMay", "\(names.joined(separator: ", ")) is not allowed; alias, tags, each once")
            }
        }
        app.vendors = readChannels(object, "vendors", of: VendorChannel.vendors) ?? []
        object.finish()
        return appID == nil ? nil : app
    }

    private func readRegistration(_ object: ConfigurationObject, into app: inout AppConfiguration) {
        app.registersBySecret = object.boolean("appSecret") ?? true
        for (index, pem) in (object.strings("publicKeys", limit: 3, mayBeEmpty: true) ?? []).enumerated() {
            do throws(TLSFailure) {
                _ = try RSAPublicKey(pem: Array(pem.utf8))
                app.tokenKeys.append(pem)
            } catch {
                object.report("publicKeys", "text \(index + 1) holds \(error.description)")
            }
        }
        let hasSecret = app.masterSecrets.contains { $0.exposed.utf8.count >= ServerToken.secretByteCount }
        if !app.registersBySecret, app.tokenKeys.isEmpty, !hasSecret {
            object.report(
                "appSecret",
                "false leaves no way to register; give publicKeys, or a masterSecret of 32 characters or more for HS256"
            )
        }
        object.finish()
    }

    /// Reads a list of vendors' names without repetitions.
    private func readChannels(
        _ object: ConfigurationObject, _ key: String, of channels: [VendorChannel]
    ) -> [VendorChannel]? {
        guard let names = object.strings(key, limit: channels.count) else { return nil }
        let allowed = channels
        let channels = names.compactMap { name in allowed.first { "\($0.name)" == name } }
        guard channels.count == names.count, Set(channels).count == names.count else {
            let allowed = allowed.map { "\($0.name)" }.joined(separator: ", ")
            object.report(key, "\(names.joined(separator: ", ")) is not allowed; some of \(allowed), each once")
            return nil
        }
        return channels
    }

    private enum OverflowName: String, CaseIterable {
        case reject, dropOldest
        var policy: AppSettings.OverflowPolicy { self == .reject ? .reject : .dropOldest }
    }

    private func checkApps(_ root: ConfigurationObject, _ configuration: GatewayConfiguration) {
        if !configuration.usesDemoApp, !root.has("apps") {
            root.report(
                "apps",
                "missing; name the apps, set demo: true for a generated one, or give [] where the admin API makes them all"
            )
        }
        var seen: Set<String> = []
        for app in configuration.apps where !seen.insert(app.appID).inserted {
            root.report("apps", "the appId \"\(app.appID)\" stands twice")
        }
    }

    static let appIDRule = "1 to 64 of the characters A–Z a–z 0–9 _ - ."

    static func isAppID(_ text: String) -> Bool {
        1...64 ~= text.utf8.count
            && text.utf8.allSatisfy {
                switch $0 {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "."):
                    true
                default: false
                }
            }
    }

    // MARK: Credentials and hook

    private func readCredential(
        _ object: ConfigurationObject, _ secrets: inout SecretReader, apps configuration: GatewayConfiguration
    ) -> Credential? {
        let name = object.string("name", allowed: Self.appIDRule, where: Self.isAppID)
        if !object.has("name") { object.report("name", "missing") }
        let tokens = secrets.read(object, "token", 16...256)
        let apps = object.strings("apps", limit: ConfigurationLimits.appCount)
        for app in apps ?? [] where configuration.app(id: app) == nil {
            object.report("apps", "\"\(app)\" is not allowed; an appId of apps")
        }
        let names = Credential.Permission.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
        let permissions = object.strings("may", limit: Credential.Permission.allCases.count)
        if !object.has("may") { object.report("may", "missing; one or more of \(names)") }
        var granted: Set<Credential.Permission> = []
        for text in permissions ?? [] {
            if let permission = Credential.Permission(rawValue: text) {
                granted.insert(permission)
            } else {
                object.report("may", "\"\(text.prefix(64))\" is not allowed; one or more of \(names)")
            }
        }
        object.finish()
        return Credential(
            name: name ?? "", tokens: tokens ?? [], apps: apps.map { Set($0) }, permissions: granted)
    }

    /// Rejects secrets with more than one purpose, and warns about apps that share a secret.
    ///
    /// An appSecret is in every copy of the app. If it were also a masterSecret or a credential's token, every owner of a copy
    /// could publish, or read messages of others.
    private func checkSecrets(_ root: ConfigurationObject, _ configuration: inout GatewayConfiguration) {
        let tokens = Set(configuration.credentials.flatMap(\.tokens))
        var owners: [Secret: String] = [:]
        for app in configuration.apps {
            for problem in Self.secretProblems(of: app, tokens: tokens) { root.report("apps", problem) }
            for secret in Set(app.appSecrets + app.masterSecrets) {
                guard let other = owners.updateValue(app.appID, forKey: secret), other != app.appID else { continue }
                configuration.warnings.append("the apps \"\(other)\" and \"\(app.appID)\" share a secret")
            }
        }
    }

    /// Returns the problems of an app's secrets; `tokens` has the tokens of all credentials.
    static func secretProblems(of app: AppConfiguration, tokens: Set<Secret>) -> [String] {
        let (open, secret) = (Set(app.appSecrets), Set(app.masterSecrets))
        var problems: [String] = []
        if !open.isDisjoint(with: secret) {
            problems.append("\"\(app.appID)\" has an appSecret that is a masterSecret, too; make a new one")
        }
        if open.count < app.appSecrets.count || secret.count < app.masterSecrets.count {
            problems.append("\"\(app.appID)\" has a secret that stands twice")
        }
        if !open.union(secret).isDisjoint(with: tokens) {
            problems.append("\"\(app.appID)\" has a secret that is a credential's token, too; make a new one")
        }
        return problems
    }

    private func checkCredentials(_ root: ConfigurationObject, _ configuration: GatewayConfiguration) {
        var names: Set<String> = [], tokens: Set<Secret> = []
        for credential in configuration.credentials {
            if !credential.name.isEmpty, !names.insert(credential.name).inserted {
                root.report("credentials", "the name \"\(credential.name)\" stands twice")
            }
            for token in credential.tokens where !tokens.insert(token).inserted {
                root.report("credentials", "\"\(credential.name)\" has a token that stands twice")
            }
        }
        guard configuration.credentials.isEmpty else { return }
        for (key, address) in [
            ("admin.listen", configuration.admin.plain), ("admin.tls.listen", configuration.admin.tls?.address),
        ] {
            guard let address, !address.isLoopback else { continue }
            problems.report(
                key, at: nil,
                "\(address) is not allowed without credentials; a loopback address, or configure credentials")
        }
    }

    func readHook(
        _ object: ConfigurationObject, _ secrets: inout SecretReader, batchName: String = "batchJobs",
        batchLimit: Int64 = 500, hasSecret: Bool = true
    ) -> GatewayConfiguration.Hook? {
        let allowed = "an https URL, or an http URL on loopback, without user, password or fragment"
        let text = object.string("url", allowed: allowed) { (try? HookURL($0)) != nil }
        if !object.has("url") { object.report("url", "missing; \(allowed)") }
        let keys = hasSecret ? secrets.read(object, "secret", 8...256) { HookSecret($0) != nil } : []
        let authorities = object.has("authorities") ? readAuthorities(object, "authorities") : nil
        let batch = object.integer(batchName, in: 1...batchLimit)
        let timeout = object.integer("timeoutSeconds", in: 1...120)
        object.finish()
        guard let text, let url = try? HookURL(text), let keys else { return nil }
        var hook = GatewayConfiguration.Hook(url: url, secrets: keys, authoritiesFile: authorities)
        if let batch { hook.batchJobs = Int(batch) }
        if let timeout { hook.timeoutSeconds = timeout }
        return hook
    }

    // MARK: Paths

    private var folder: String {
        guard let slash = file.lastIndex(of: "/") else { return "" }
        return String(file[...slash])
    }

    private func resolved(_ path: String) -> String { path.hasPrefix("/") ? path : folder + path }
}
