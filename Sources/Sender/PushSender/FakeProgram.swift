internal import APNs
internal import Configuration
internal import Cryptography
internal import EventLoops
internal import FakeAPNs
internal import FakeVendors
internal import Glibc
internal import Platform
internal import TextForms

/// The command `longwire-sender fake`: Apple's environments, the other vendors and a web page with the phones, in one process.
final class FakeProgram {
    let loop: EventLoop
    private(set) var addresses: [(name: String, address: String)] = []
    /// The next steps of a trial, printed at the start.
    private(set) var advice: [String] = []
    private var fakes: [Environment: FakeAPNs] = [:]
    private var vendors: FakeVendors?
    private var page: FakePage?
    private var record: CInt = -1
    private var lines: [UInt8] = []

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// Creates a missing certificate or key, and opens the listeners.
    init(_ arguments: SenderArguments.Fake) throws {
        loop = try EventLoop(index: 0, name: "fake-apns")
        try FileText.makeFolder(arguments.folder)
        let (certificate, certificateKey) = (arguments.folder + "/certificate.pem", arguments.folder + "/key.pem")
        if !FileSystem.exists(certificate) {
            try SelfSignedCertificate.write(
                names: "DNS:localhost,DNS:\(FakeAccounts.pushHost),IP:127.0.0.1,IP:::1", days: 365,
                certificatePath: certificate,
                keyPath: certificateKey)
        }
        let keyFile = arguments.keyFile ?? arguments.folder + "/AuthKey.p8"
        if !FileSystem.exists(keyFile) { try FileText.replacePrivately(keyFile, with: try SigningKey.makePEM()) }
        let key = FakeKey(
            keyID: arguments.keyID, teamID: arguments.teamID,
            key: try SigningKey(
                pem: try FileText.read(keyFile, limit: ConfigurationLimits.secretFileByteCount).bytes, name: keyFile))
        var script = FakeScript.conventional
        if let file = arguments.script {
            script = try FakeScript.read(
                try FileText.read(file, limit: ConfigurationLimits.fileByteCount).bytes, file: file)
        }
        if let file = arguments.record {
            record = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
            guard record >= 0 else {
                throw Failure(description: "\(file) cannot be written: \(SystemError.last("open"))")
            }
        }
        for (environment, text, channelText) in [
            (Environment.production, arguments.production, arguments.productionChannels),
            (.sandbox, arguments.sandbox, arguments.sandboxChannels),
        ] {
            let context = try TLSContext(certificatePath: certificate, keyPath: certificateKey)
            context.requireHTTP2()
            let fake = FakeAPNs(
                on: loop, environment: environment, tls: context, keys: [key], script: script,
                record: record < 0 ? nil : { [unowned self] in note($0) })
            try fake.listen(try ListeningSocket(text))
            try fake.listenForChannels(try ListeningSocket(channelText))
            fakes[environment] = fake
            addresses.append((environment.rawValue, fake.address.map { "\($0)" } ?? text))
            addresses.append((environment.rawValue + "Channels", fake.channelAddress.map { "\($0)" } ?? channelText))
        }
        let vendorSocket = try ListeningSocket(arguments.vendors)
        addresses.append(("vendors", "https://\(vendorSocket.address)"))
        let accounts = try Self.accounts(arguments.folder, port: vendorSocket.address.port)
        configureSender(arguments, accounts)
        let vendors = try FakeVendors(
            on: loop, socket: vendorSocket,
            tls: try TLSContext(certificatePath: certificate, keyPath: certificateKey), accounts: accounts,
            scripts: script.vendors, record: record < 0 ? nil : { [unowned self] in note($0) })
        self.vendors = vendors
        let socket = try ListeningSocket(arguments.page)
        addresses.append(("page", "http://\(socket.address)/"))
        page = try FakePage(of: fakes, vendors: vendors, on: loop, socket: socket, isOpen: arguments.isOpen)
        addresses.append(("certificate", certificate))
        addresses.append(("key", keyFile))
        // Record lines are written before the turn's answers are sent, so that a sender with an answer finds its request in the
        // file.
        loop.onTurnEnd { [unowned self] in writeLines() }
    }

    /// Reads the keys of the test credentials, and creates missing ones.
    ///
    /// In a folder that cannot be written, such as a read-only volume, new keys end with the process.
    private static func accounts(_ folder: String, port: UInt16) throws -> FakeAccounts {
        func pem(_ name: String, _ make: () throws -> [UInt8]) throws -> [UInt8] {
            let path = folder + "/" + name
            guard FileSystem.exists(path) else {
                let made = try make()
                try? FileText.replacePrivately(path, with: made)
                return made
            }
            return try FileText.read(path, limit: ConfigurationLimits.secretFileByteCount).bytes
        }
        return try FakeAccounts(
            service: try pem("service.pem") { try RSASigningKey.makePEM() },
            vapid: try pem("vapid.pem") { try SigningKey.makePEM() },
            browser: try pem("browser.pem") { try SigningKey.makePEM() }, port: port)
    }

    private static func absolute(_ path: String) -> String {
        guard let found = realpath(path, nil) else { return path }
        defer { free(found) }
        return String(cString: found)
    }

    /// Writes a sender's configuration for all fakes.
    private func configureSender(_ arguments: SenderArguments.Fake, _ accounts: FakeAccounts) {
        let folder = arguments.folder
        let (tokenFile, configuration) = (folder + "/sender-token", folder + "/sender.json5")
        func place(_ name: String) -> String {
            "localhost:" + (addresses.first { $0.name == name }?.address.split(separator: ":").last ?? "")
        }
        // Paths in a configuration are relative to its own folder.
        let key = arguments.keyFile.map(Self.absolute) ?? "AuthKey.p8"
        let files = accounts.files(
            gateway: arguments.gateway,
            apple: """
                  apple: {
                    production: "\(place("production"))", sandbox: "\(place("sandbox"))",
                    productionChannels: "\(place("productionChannels"))", sandboxChannels: "\(place("sandboxChannels"))",
                    authoritiesFile: "certificate.pem",
                  },
                """,
            appleCredential: "{name: \"fake\", key: {file: \(JSONString.quoted(key)), "
                + "keyId: \(JSONString.quoted(arguments.keyID)), teamId: \(JSONString.quoted(arguments.teamID))}}")
        do throws(FileText.Failure) {
            if FileSystem.exists(configuration) {
                let old = try FileText.read(configuration, limit: ConfigurationLimits.fileByteCount).bytes
                guard old.starts(with: FakeAccounts.configurationMark.utf8) else {
                    advice = ["\(configuration) is not the fake's, so it was kept."]
                    return
                }
            }
            if !FileSystem.exists(tokenFile) {
                try FileText.replacePrivately(tokenFile, with: Array((SecureRandom.bytes(24).hexDigits + "\n").utf8))
            }
            for (name, text) in files { try FileText.replacePrivately(folder + "/" + name, with: Array(text.utf8)) }
        } catch {
            advice = ["No sender's configuration was written: \(error.path): \(error.reason)."]
            return
        }
        advice = [
            "Add this credential to the gateway's configuration:",
            "  {name: \"sender\", tokenFile: \"\(tokenFile)\", may: [\"handoff\"]}",
            "Then start a sender that uses the fakes:",
            "  longwire-sender --config \(configuration)",
            "Any text is a device token; one that begins with dead is unregistered. A device token of Web Push:",
            "  \(accounts.pushToken("browser-1"))",
        ]
    }

    deinit { if record >= 0 { close(record) } }

    private func note(_ line: [UInt8]) {
        lines += line
        lines.append(UInt8(ascii: "\n"))
    }

    private func writeLines() {
        guard !lines.isEmpty else { return }
        lines.withUnsafeBytes { _ = Glibc.write(record, $0.baseAddress, $0.count) }
        lines.removeAll(keepingCapacity: true)
    }
}
