internal import APNs
internal import Configuration
internal import Cryptography
internal import Glibc
internal import HTTPClient
internal import Vendors
internal import Webhooks

/// The configuration of `longwire-sender`, read from one JSON5 file.
struct SenderConfiguration {
    struct Key {
        var file: String
        var keyID: String
        var teamID: String
    }

    struct Certificate {
        var file: String
        var keyFile: String?
        var password: Secret?
    }

    enum Proof {
        case key(Key)
        case certificate(Certificate)
    }

    struct CredentialEntry {
        var name: String
        var proof: Proof
        var environments: Set<Environment>
        /// The apps of this credential; empty for all apps that no other credential names.
        var apps: [String]
    }

    struct Hook {
        var listener: SenderListener
        var secrets: [Secret]
    }

    var file: String
    var link: GatewayLink.Settings
    var tokens: [Secret]
    var leases: Bool
    var hook: Hook?
    var endpoints: [Environment: Lane.Endpoint]
    var channelEndpoints: [Environment: Lane.Endpoint]
    var appleAuthorities: String?
    var limits: Lane.Limits
    var stopMilliseconds: UInt64
    /// The credentials of Apple.
    var credentials: [CredentialEntry]
    var vendorAccounts: [VendorAccount]
    var vendorSettings: [Vendor: VendorSettings]
    /// The listener of the vendors' receipts, and the proofs by credential.
    var receipts: SenderListener?
    var receiptAccounts: [ReceiptAccount]
    var admin: SenderListener?
    /// The bearer tokens for `/v1/channels` and `/v1/broadcasts`; empty disables both.
    var adminTokens: [Secret]
    /// The period before a certificate's expiry in which warnings are logged.
    var certificateWarningSeconds: Int64
    var warnings: [String] = []

    /// Reads and checks the file and the secrets that it names.
    ///
    /// `--check` does only this. `variable` returns an environment variable of the process.
    static func load(
        _ path: String, variable: (String) -> String? = { name in getenv(name).map { String(cString: $0) } }
    ) throws(ConfigurationError) -> SenderConfiguration {
        let contents: FileText.Contents
        do throws(FileText.Failure) {
            contents = try FileText.read(path, limit: ConfigurationLimits.fileByteCount)
        } catch {
            throw ConfigurationError(
                file: path,
                problems: [ConfigurationProblem(path: "", position: nil, text: "cannot be read: \(error.reason)")])
        }
        let problems = ConfigurationProblems()
        let root = try ConfigurationObject.root(contents.bytes, file: path, problems: problems)
        var reader = SenderConfigurationReader(file: path, problems: problems)
        let configuration = reader.read(root, variable)
        guard problems.all.isEmpty, let configuration else {
            throw ConfigurationError(file: path, problems: problems.sorted)
        }
        return configuration
    }
}

struct SenderConfigurationReader {
    let file: String
    let problems: ConfigurationProblems
    var secrets: SecretReader
    var warnings: [String] = []
    var receiptAccounts: [ReceiptAccount] = []

    init(file: String, problems: ConfigurationProblems) {
        (self.file, self.problems) = (file, problems)
        secrets = SecretReader(folder: Self.folder(of: file), problems: problems)
    }

    private static func folder(of file: String) -> String {
        file.lastIndex(of: "/").map { String(file[...$0]) } ?? ""
    }

    func resolved(_ path: String) -> String { path.hasPrefix("/") ? path : Self.folder(of: file) + path }

    mutating func read(_ root: ConfigurationObject, _ variable: (String) -> String?) -> SenderConfiguration? {
        var link = GatewayLink.Settings(url: "http://127.0.0.1:7081")
        var tokens: [Secret] = []
        var leases = true
        if let gateway = root.object("gateway") {
            read(gateway, &link, &leases)
            tokens = secrets.read(gateway, "token", 1...4_096) ?? []
            gateway.finish()
        } else {
            root.report("gateway", "missing; the gateway's address and token")
        }
        var hook: SenderConfiguration.Hook?
        if let object = root.object("hook") { hook = readHook(object) }
        let ownProxy = root.object("proxy").flatMap { readProxy($0) }
        // HTTPS_PROXY is read only if a vendor needs it. A wrong value is therefore no error if `proxy` keys are given instead.
        var variableChoice: ProxyChoice??
        func proxy() -> ProxyChoice? {
            if root.has("proxy") { return ownProxy }
            if let variableChoice { return variableChoice }
            let choice = Self.variableProxy(root, variable)
            variableChoice = .some(choice)
            return choice
        }
        let (endpoints, channelEndpoints, authorities, limits) = apple(
            root.object("apple"), jobs: link.jobs, proxy)
        var credentials: [SenderConfiguration.CredentialEntry] = []
        var accounts: [VendorAccount] = []
        for object in root.objects("credentials", limit: 1_000) ?? [] {
            switch object.value("vendor", allowed: Self.channelNames, { Channel(name: $0) }) {
            case .vendor(let vendor):
                if let account = readAccount(object, vendor) { accounts.append(account) }
            case .apns: if let credential = readCredential(object) { credentials.append(credential) }
            case nil:
                // A credential without `vendor` is Apple's. The fields of an unknown vendor cannot be read.
                if !object.has("vendor"), let credential = readCredential(object) { credentials.append(credential) }
            }
        }
        if !root.has("credentials") { root.report("credentials", "missing; at least one credential of a vendor") }
        if root.has("credentials"), credentials.isEmpty, accounts.isEmpty, problems.all.isEmpty {
            root.report("credentials", "empty; at least one credential of a vendor")
        }
        checkNames(credentials.map { ("apns", $0.name) } + accounts.map { ($0.vendor.rawValue, $0.name) }, root)
        let vendorSettings = readVendors(root, link, of: Set(accounts.map(\.vendor)), proxy)
        var receipts: SenderListener?
        if let object = root.object("receipts") {
            receipts = listener(object)
            object.finish()
            if let plain = receipts?.plain, !plain.isLoopback {
                warnings.append(
                    "receipts.listen \(plain): the secrets of callbacks travel in the clear; use receipts.tls")
            }
        }
        if !receiptAccounts.isEmpty, !root.has("receipts") {
            root.report("receipts", "missing; the listener for the receipts of \(receiptAccounts[0].name)")
        }
        var adminTokens: [Secret] = []
        var admin: SenderListener?
        if let object = root.object("admin") {
            admin = listener(object)
            if object.has("token") || object.has("tokenFile") {
                adminTokens = secrets.read(object, "token", 16...4_096) ?? []
            }
            object.finish()
        }
        if !adminTokens.isEmpty, let plain = admin?.plain, !plain.isLoopback {
            warnings.append("admin.listen \(plain): callers' tokens travel in the clear; use admin.tls")
        }
        warnings += unused(credentials) + unused(accounts)
        let stop = root.integer("stopSeconds", in: 0...300) ?? 10
        // Two weeks leave time for manual renewal.
        let warningDays = root.integer("certificateWarningDays", in: 1...365) ?? 14
        root.finish()
        // A request starts only if it ends within its job's lease, so the lease must be longer than the timeout.
        if limits.requestMilliseconds > UInt64(link.leaseSeconds) * 500 {
            root.report("apple", "requestMilliseconds must be at most half of gateway.leaseSeconds")
        }
        if !leases, hook == nil { root.report("hook", "missing; with gateway.lease false the hook is the only way in") }
        return SenderConfiguration(
            file: file, link: link, tokens: tokens, leases: leases, hook: hook, endpoints: endpoints,
            channelEndpoints: channelEndpoints, appleAuthorities: authorities, limits: limits,
            stopMilliseconds: UInt64(stop) * 1_000,
            credentials: credentials, vendorAccounts: accounts, vendorSettings: vendorSettings,
            receipts: receipts, receiptAccounts: receiptAccounts, admin: admin,
            adminTokens: adminTokens,
            certificateWarningSeconds: Int64(warningDays) * 86_400, warnings: secrets.warnings + warnings)
    }

    private func read(_ gateway: ConfigurationObject, _ link: inout GatewayLink.Settings, _ leases: inout Bool) {
        let form = "https://host:port, or http:// of this machine"
        if let url = gateway.string("url", allowed: form, where: { (try? HookURL($0)) != nil }) {
            link.url = url.hasSuffix("/") ? String(url.dropLast()) : url
        }
        link.trust.authoritiesFile = authorities(gateway)
        link.trust.certificateFile = path(gateway, "certificate", "the path of a .pem file")
        link.trust.keyFile = path(gateway, "key", "the path of a .pem file")
        if gateway.has("certificate") != gateway.has("key") {
            gateway.report(
                gateway.has("key") ? "certificate" : "key", "missing; certificate and key go together")
        }
        leases = gateway.boolean("lease") ?? true
        link.leaseSeconds = Int(gateway.integer("leaseSeconds", in: 10...300) ?? 60)
        link.waitSeconds = Int(gateway.integer("waitSeconds", in: 0...30) ?? 20)
        link.jobs = Int(gateway.integer("jobs", in: 1...100_000) ?? 2_000)
    }

    private mutating func readHook(_ object: ConfigurationObject) -> SenderConfiguration.Hook? {
        defer { object.finish() }
        let secrets = secrets.read(object, "secret", 32...256) { HookSecret($0) != nil }
        guard let listener = listener(object), let secrets else { return nil }
        return SenderConfiguration.Hook(listener: listener, secrets: secrets)
    }

    /// Reads `listen`, `tls` with `listen`, `certificate` and `key`, or both.
    private func listener(_ object: ConfigurationObject) -> SenderListener? {
        let (form, file) = ("HOST:PORT with a numeric host", "the path of a .pem file")
        var listener = SenderListener(plain: object.value("listen", allowed: form) { ListenAddress($0) })
        if let tls = object.object("tls") {
            let address = tls.required("listen", form) { ListenAddress($0) != nil }.flatMap { ListenAddress($0) }
            let certificate = tls.required("certificate", file) { !$0.isEmpty }
            let key = tls.required("key", file) { !$0.isEmpty }
            let authorities = path(tls, "clientAuthorities", file)
            let names = tls.clientNames()
            tls.finish()
            if let address, let certificate, let key {
                listener.tls = SenderListener.TLS(
                    address: address, certificate: resolved(certificate), key: resolved(key),
                    clients: authorities.map { ClientCertificates(authoritiesFile: $0, names: names) })
            }
        } else if !object.has("listen") {
            object.report("listen", "missing; HOST:PORT, or tls with listen, certificate and key")
        }
        return listener.plain == nil && listener.tls == nil ? nil : listener
    }

    private mutating func apple(
        _ object: ConfigurationObject?, jobs: Int, _ common: () -> ProxyChoice?
    ) -> (
        [Environment: Lane.Endpoint], channels: [Environment: Lane.Endpoint], authorities: String?, Lane.Limits
    ) {
        var endpoints: [Environment: Lane.Endpoint] = [:]
        var channels: [Environment: Lane.Endpoint] = [:]
        for environment in Environment.allCases {
            endpoints[environment] = Lane.Endpoint(host: environment.host, port: 443)
            channels[environment] = Lane.Endpoint(host: environment.channelHost, port: environment.channelPort)
        }
        var limits = Lane.Limits()
        limits.failingJobs = max(1, jobs / 4)
        guard let object else {
            setProxy(common(), &endpoints, &channels)
            return (endpoints, channels, nil, limits)
        }
        defer { object.finish() }
        func endpoint(_ key: String) -> Lane.Endpoint? {
            object.value(key, allowed: "HOST or HOST:PORT", Self.endpoint)
        }
        for environment in Environment.allCases {
            if let given = endpoint(environment.rawValue) { endpoints[environment] = given }
            if let given = endpoint(environment.rawValue + "Channels") { channels[environment] = given }
        }
        let proxy = object.has("proxy") ? object.object("proxy").flatMap { readProxy($0) } : common()
        setProxy(proxy, &endpoints, &channels)
        limits.connections = Int(object.integer("connections", in: 1...100) ?? Int64(limits.connections))
        limits.streams = Int(object.integer("streams", in: 1...10_000) ?? Int64(limits.streams))
        limits.requestMilliseconds = UInt64(
            object.integer("requestMilliseconds", in: 100...300_000) ?? Int64(limits.requestMilliseconds))
        limits.pingMilliseconds = UInt64(
            object.integer("pingMilliseconds", in: 100...3_600_000) ?? Int64(limits.pingMilliseconds))
        return (endpoints, channels, authorities(object), limits)
    }

    private func setProxy(
        _ choice: ProxyChoice?, _ endpoints: inout [Environment: Lane.Endpoint],
        _ channels: inout [Environment: Lane.Endpoint]
    ) {
        guard let choice else { return }
        for environment in Environment.allCases {
            for endpoint in [endpoints[environment], channels[environment]] {
                guard let host = endpoint?.host, !Proxy.isExcepted(host, by: choice.exceptions) else { continue }
                if endpoints[environment]?.host == host { endpoints[environment]?.proxy = choice.proxy }
                if channels[environment]?.host == host { channels[environment]?.proxy = choice.proxy }
            }
        }
    }

    /// Reads `proxy`, `apple.proxy` or `vendors.VENDOR.proxy`: `url`, and `user` with `password` or `passwordFile`.
    ///
    /// The url `none` disables the proxy of the environment variables.
    mutating func readProxy(_ object: ConfigurationObject) -> ProxyChoice? {
        defer { object.finish() }
        let url = object.required("url", "\(Proxy.form), or none") {
            $0 == "none" || Proxy(url: $0).map { $0.credentials == nil } == true
        }
        let isUser: (String) -> Bool = { SecretReader.isVisible($0, 1...256) && !$0.contains(":") }
        let user = object.string("user", allowed: "1 to 256 visible ASCII characters without a colon", where: isUser)
        let password = optionalSecret(object)
        if object.has("password") || object.has("passwordFile") {
            if !object.has("user") { object.report("user", "missing; the password is of a user") }
        }
        guard let url, var proxy = Proxy(url: url) else { return nil }
        if let user { proxy.credentials = Secret(user + ":" + (password?.exposed ?? "")) }
        return ProxyChoice(proxy: proxy)
    }

    private static func variableProxy(_ root: ConfigurationObject, _ variable: (String) -> String?) -> ProxyChoice? {
        func value(_ name: String) -> String? {
            let found = variable(name) ?? variable(name.lowercased())
            return found?.isEmpty == false ? found : nil
        }
        guard let url = value("HTTPS_PROXY") else { return nil }
        guard let proxy = Proxy(url: url.contains("://") ? url : "http://" + url) else {
            // The message leaves out the value, which may hold a password.
            root.report(
                "proxy", "the variable HTTPS_PROXY is not \(Proxy.form); change it, or give proxy, which counts alone")
            return nil
        }
        return ProxyChoice(proxy: proxy, exceptions: value("NO_PROXY") ?? "")
    }

    private static func endpoint(_ text: String) -> Lane.Endpoint? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count <= 2, let host = parts.first, !host.isEmpty,
            host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") })
        else { return nil }
        guard parts.count == 2 else { return Lane.Endpoint(host: String(host), port: 443) }
        guard let port = UInt16(parts[1]), port > 0 else { return nil }
        return Lane.Endpoint(host: String(host), port: port)
    }

    func credentialName(_ object: ConfigurationObject) -> String? {
        object.required("name", "1 to 64 characters") { (1...64).contains($0.utf8.count) }
    }

    private mutating func readCredential(_ object: ConfigurationObject) -> SenderConfiguration.CredentialEntry? {
        defer { object.finish() }
        let name = credentialName(object)
        let words = object.strings("environments", limit: 2)
        let environments = words.map { Set($0.compactMap(Environment.init)) } ?? Set(Environment.allCases)
        if let words, environments.count != words.count || words.isEmpty {
            object.report("environments", "only \"production\" and \"sandbox\" are allowed, each once")
        }
        let apps = object.strings("apps", limit: 1_000) ?? []
        let proof: SenderConfiguration.Proof?
        switch (object.object("key"), object.object("certificate")) {
        case (let key?, nil): proof = readKey(key).map { .key($0) }
        case (nil, let certificate?): proof = readCertificate(certificate).map { .certificate($0) }
        case (.some, .some):
            object.report("certificate", "not allowed beside key; give one of the two")
            return nil
        case (nil, nil):
            object.report("key", "missing; give key with file, keyId and teamId, or certificate with file")
            return nil
        }
        guard let name, let proof else { return nil }
        return SenderConfiguration.CredentialEntry(name: name, proof: proof, environments: environments, apps: apps)
    }

    private func readKey(_ object: ConfigurationObject) -> SenderConfiguration.Key? {
        defer { object.finish() }
        let file = object.required("file", "the path of the .p8 file") { !$0.isEmpty }
        let form = "ten characters of A–Z and 0–9"
        let keyID = object.required("keyId", form) { ProviderToken.isIdentifier($0) }
        let teamID = object.required("teamId", form) { ProviderToken.isIdentifier($0) }
        guard let file, let keyID, let teamID else { return nil }
        return SenderConfiguration.Key(file: resolved(file), keyID: keyID, teamID: teamID)
    }

    private mutating func readCertificate(_ object: ConfigurationObject) -> SenderConfiguration.Certificate? {
        defer { object.finish() }
        let file = object.required("file", "the path of a .p12 or .pem file") { !$0.isEmpty }
        let keyFile = path(object, "keyFile")
        let password = optionalSecret(object)
        guard let file else { return nil }
        return SenderConfiguration.Certificate(file: resolved(file), keyFile: keyFile, password: password)
    }

    private mutating func optionalSecret(_ object: ConfigurationObject) -> Secret? {
        guard object.has("password") || object.has("passwordFile") else { return nil }
        return secrets.read(object, "password", 1...1_024)?.first
    }

    func path(_ object: ConfigurationObject, _ key: String, _ allowed: String = "a path") -> String? {
        object.string(key, allowed: allowed, where: { !$0.isEmpty }).map(resolved)
    }

    /// Reads the path of a PEM file of authorities, and reports a file without a certificate.
    func authorities(_ object: ConfigurationObject) -> String? {
        guard let file = path(object, "authoritiesFile") else { return nil }
        do throws(TLSFailure) {
            _ = try TLSContext(trusting: .certificates(path: file))
            return file
        } catch {
            object.report("authoritiesFile", error.description)
            return nil
        }
    }

    /// Returns warnings for credentials that no job can use, because earlier ones serve the same apps and environments.
    private func unused(_ credentials: [SenderConfiguration.CredentialEntry]) -> [String] {
        var served: Set<String> = []
        var warnings: [String] = []
        for credential in credentials {
            var isUsed = false
            for app in credential.apps.isEmpty ? [""] : credential.apps {
                for environment in credential.environments {
                    isUsed = served.insert("\(environment.rawValue) \(app)").inserted || isUsed
                }
            }
            if !isUsed {
                warnings.append(
                    "credentials: \(credential.name) is never used: earlier ones serve its apps and environments")
            }
        }
        return warnings
    }

    private func checkNames(_ credentials: [(vendor: String, name: String)], _ root: ConfigurationObject) {
        var names: Set<String> = []
        for (vendor, name) in credentials where !names.insert("\(vendor) \(name)").inserted {
            root.report("credentials", "the name \(name) is given twice for \(vendor)")
        }
    }
}

extension SenderConfiguration {
    /// Opens the keys and certificates.
    ///
    /// - Throws: a failure that names the credential and its file.
    func openCredentials(
        keeping keys: KeyRing = KeyRing()
    ) throws(TLSFailure) -> (ofApps: [String: [Credential]], others: [Credential]) {
        var (apps, others): ([String: [Credential]], [Credential]) = ([:], [])
        for entry in credentials {
            let credential = try open(entry, keys)
            if entry.apps.isEmpty { others.append(credential) }
            for app in entry.apps { apps[app, default: []].append(credential) }
        }
        return (apps, others)
    }

    func openListeners() throws(TLSFailure) -> [String: TLSContext] {
        var contexts: [String: TLSContext] = [:]
        if let tls = admin?.tls { contexts["admin"] = try tls.open("admin") }
        if let tls = hook?.listener.tls { contexts["hook"] = try tls.open("hook") }
        if let tls = receipts?.tls { contexts["receipts"] = try tls.open("receipts") }
        return contexts
    }

    /// Returns the certificates of the listeners and of the connections to Apple.
    func certificates(
        _ opened: (ofApps: [String: [Credential]], others: [Credential]), _ listeners: [String: TLSContext]
    ) -> [ShownCertificate] {
        var uses: [String: (file: String, use: ShownCertificate.Use)] = [:]
        for (name, tls) in [("admin", admin?.tls), ("hook", hook?.listener.tls), ("receipts", receipts?.tls)] {
            guard let tls, let context = listeners[name] else { continue }
            uses[name] = (tls.certificate, ShownCertificate.Use(name: name, tls: context, isServer: true))
        }
        // A credential of several apps appears only once.
        let all = opened.ofApps.values.flatMap { $0 } + opened.others
        for entry in credentials {
            guard case .certificate(let certificate) = entry.proof,
                let credential = all.first(where: { $0.name == entry.name })
            else { continue }
            let name = "credential \(entry.name)"
            uses[name] = (
                certificate.file, ShownCertificate.Use(name: name, tls: credential.tls, isServer: false)
            )
        }
        return ShownCertificate.gathered(Array(uses.values))
    }

    func ends(of certificates: [ShownCertificate]) -> CertificateEnds {
        CertificateEnds(ends: certificates.flatMap(\.ends), warning: certificateWarningSeconds)
    }

    /// Returns the problems that peers find with certificates, now or soon.
    ///
    /// Without `ownEnds`, expiring ones are left out, because the log reports them daily.
    func findings(
        of certificates: [ShownCertificate], ownEnds: Bool
    ) -> (refused: [String], unwise: [String]) {
        let found = certificates.flatMap { $0.findings(endingWithin: certificateWarningSeconds) }
            .filter { ownEnds || !$0.finding.isOwnEnd }
        func texts(_ weight: CertificateFinding.Weight) -> [String] {
            found.filter { $0.finding.weight == weight }.map { "\($0.names): \($0.finding)" }
        }
        return (texts(.refused), texts(.unwise))
    }

    func open(_ entry: CredentialEntry, _ keys: KeyRing = KeyRing()) throws(TLSFailure) -> Credential {
        let tls = try TLSContext(trusting: appleAuthorities.map { .certificates(path: $0) } ?? .system)
        tls.requireHTTP2()
        switch entry.proof {
        case .key(let key):
            let contents: FileText.Contents
            do throws(FileText.Failure) {
                contents = try FileText.read(key.file, limit: ConfigurationLimits.secretFileByteCount)
            } catch {
                throw TLSFailure("credential \(entry.name): \(key.file) cannot be read: \(error.reason)")
            }
            let tokens = try keys.tokens(of: key, pem: contents.bytes)
            return Credential(name: entry.name, tokens: tokens, environments: entry.environments, tls: tls)
        case .certificate(let certificate):
            try tls.identify(
                withCertificate: certificate.file, keyPath: certificate.keyFile,
                // The password is used only to open the file.
                password: certificate.password?.exposed ?? "")
            return Credential(name: entry.name, tokens: nil, environments: entry.environments, tls: tls)
        }
    }
}

/// The keys in use, each with its provider token; a reload, or a second credential with the same key, reuses the token.
final class KeyRing {
    private var tokens: [String: ProviderTokens] = [:]

    func tokens(of key: SenderConfiguration.Key, pem: [UInt8]) throws(TLSFailure) -> ProviderTokens {
        let digest = pem.withUnsafeBytes { SHA256.digest($0).hex }
        let name = "\(key.teamID)/\(key.keyID)/\(digest)"
        if let known = tokens[name] { return known }
        let made = ProviderTokens(
            try SigningKey(pem: pem, name: key.file), keyID: key.keyID, teamID: key.teamID)
        tokens[name] = made
        return made
    }
}
