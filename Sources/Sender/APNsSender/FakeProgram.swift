internal import APNs
internal import Configuration
internal import Cryptography
internal import EventLoops
internal import FakeAPNs
internal import Glibc
internal import Platform

/// The command `longwire-sender fake`: both of Apple's environments and a web page with the phones, in one process.
final class FakeProgram {
    let loop: EventLoop
    private(set) var addresses: [(name: String, address: String)] = []
    private var fakes: [Environment: FakeAPNs] = [:]
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
                names: "DNS:localhost,IP:127.0.0.1,IP:::1", days: 365, certificatePath: certificate,
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
        let socket = try ListeningSocket(arguments.page)
        addresses.append(("page", "http://\(socket.address)/"))
        page = try FakePage(of: fakes, on: loop, socket: socket, isOpen: arguments.isOpen)
        addresses.append(("certificate", certificate))
        addresses.append(("key", keyFile))
        // Written before the turn's answers are sent, so that a sender with an answer finds its request in the file.
        loop.onTurnEnd { [unowned self] in writeLines() }
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
