internal import Foundation
internal import HTTPClient
internal import LongwireClient
internal import TextForms
internal import Wire

enum ConnectCommand {
    static let syntax = CommandSyntax(
        name: "connect", summary: "Acts as a device: registers, stays connected, prints messages as JSON lines.",
        options: [
            .value("host", "HOST", "The gateway. Default: 127.0.0.1, or the demo app's address."),
            .value("port", "PORT", "Its device port. Default: 7000, or the demo app's."),
            .flag("tls", "Connect with TLS."),
            .value("ca", "FILE", "PEM certificates to trust instead of the system's."),
            Credentials.certificateOption, Credentials.keyOption,
            Credentials.appOption,
            .value("app-secret", "SECRET", "The app's secret; needed until the device is registered."),
            .value(
                "state-file", "FILE",
                "The device's identity and the messages that it has processed; made at the first start. "
                    + "Default: ./longwire-device.state. The word none: a new device at each start."),
            .flag("no-ack", "Print messages and leave them un-acked."),
            .value(
                "state", "WORD", "The application state: foreground, background or terminated. Default: foreground."),
            .flag("keeps-running", "The app keeps its connection in the background."),
            .value("token", "HEX", "The token for alerts."),
            .value("voip-token", "HEX", "The token for VoIP pushes."),
            .value(
                "activity-token", "NAME=HEX", "A Live Activity's token, under its laId; may be given again, up to 8."),
            .value("start-token", "HEX", "The token that starts Live Activities."),
            .value(
                "channel", "WORD", "The tokens' channel: \(channels.map(\.0).joined(separator: ", ")). Default: apns."),
            .value("environment", "WORD", "The tokens': production or sandbox. Default: production."),
            .value("topic", "TEXT", "The tokens' topic, the bundle id. Default: the app's configured one."),
            .value("opened", "MSGID", "Opened from its notification before this start; may be given again, up to 32."),
            .value("badge", "N", "Sets the badge."),
            .value("alias", "NAME", "Binds this alias to the device; the app's setting deviceMay must allow it."),
            .value("tag", "NAME", "Adds this tag to the device, in the same way; may be given again."),
            .value("heartbeat", "S", "The requested heartbeat, 30 to 1800 seconds."),
            .flag(
                "send-lines",
                "Send each line of standard input to the app's server; its end ends the command, once all are sent."),
            .value("exit-after", "N", "End after N messages, once they are acked."),
            .value("timeout", "S", "End after S seconds."),
            .flag("no-reconnect", "End with the first connection."),
            Credentials.dataOption,
        ],
        notes: [
            "Each line is an object with \"event\": connecting, registered, welcome, message, suppressed, dropped, "
                + "revoked, updated, names, sent, sendRefused, closed, disconnected, retry, stopped. A message has msgId, taskId, stream, sequence, "
                + "offline, acceptedAt, alertedAt, attempt, and payload (text) or payloadBase64.",
            "A refused alias or tag is an event \"names\" with its code; it does not end the command.",
            "Ctrl-C and SIGTERM send a Close to the gateway. Exit codes: 0 done; 1 refused by the gateway, or fewer "
                + "messages than --exit-after within --timeout; 64 wrong usage; 69 never connected.",
        ],
        run: { try run($0, $1) })

    private static func run(_ arguments: ParsedArguments, _ context: CommandContext) throws -> ExitCode {
        let configuration = try configuration(arguments, context)
        let opened = try openedMessages(arguments)
        let expected = try arguments.number("exit-after", in: 1...1_000_000_000)
        let timeout = try arguments.number("timeout", in: 1...31_536_000)
        let path = arguments.text("state-file") ?? "./longwire-device.state"
        let store: any StateStore = path == "none" ? MemoryStateStore() : FileStateStore(path: path)

        let sending = arguments.has("send-lines") ? SentLines() : nil
        let progress = ConnectProgress(expected: expected.map(Int.init), acks: !arguments.has("no-ack"))
        let (host, usesTLS) = (configuration.host, configuration.usesTLS)
        let client = LongwireClient(
            configuration: configuration, store: store,
            events: { event in
                if let line = ConnectReport.line(for: event) { context.write(line.text) }
                if let hint = progress.note(event, host: host, usesTLS: usesTLS) {
                    context.complain("longwire: \(hint)")
                }
                sending?.note(event)
            },
            handler: { message in
                let step = progress.next()
                if step.isShown { context.write(ConnectReport.line(for: message).text) }
                return step.verdict
            })
        progress.finishOn { client.stop() }
        // Breaks the retain cycle between the client and `progress`.
        defer { progress.finishOn {} }
        do {
            try client.start(opened: opened)
        } catch {
            throw error.code == .systemResource
                ? CommandFailure.refused(error.message) : CommandFailure.usage(error.message)
        }
        let sources = stopOnSignals(client)
        if let timeout {
            DispatchQueue.global().asyncAfter(deadline: .now() + .seconds(Int(timeout))) { client.stop() }
        }
        sending?.read(into: client)
        addNames(arguments, to: client, context)
        client.waitUntilStopped()
        for source in sources { source.cancel() }
        return try progress.verdict()
    }

    /// Binds the alias and adds the tags of the options; the gateway's answers are events.
    private static func addNames(_ arguments: ParsedArguments, to client: LongwireClient, _ context: CommandContext) {
        let (alias, tags, complain) = (arguments.text("alias"), arguments.all("tag"), context.complain)
        guard alias != nil || !tags.isEmpty else { return }
        Task {
            do throws(LongwireClientError) {
                if let alias { try await client.bindAlias(alias) }
            } catch { complain("longwire: the alias was not set: \(error.message)") }
            do throws(LongwireClientError) {
                if !tags.isEmpty { try await client.addTags(tags) }
            } catch { complain("longwire: the tags were not set: \(error.message)") }
        }
    }

    /// The lines of standard input that are sent to the app's server.
    ///
    /// Sound although unchecked: every field is accessed only while `lock` is held.
    private final class SentLines: @unchecked Sendable {
        private let lock = NSCondition()
        private var underWay = 0
        /// The maximum of lines in flight, below the client's own limit.
        private static let limit = 64

        func note(_ event: ClientEvent) {
            switch event {
            case .messageTaken, .messageRefused:
                lock.withLock {
                    underWay -= 1
                    lock.signal()
                }
            case .stopped:
                lock.withLock {
                    underWay = .min / 2
                    lock.signal()
                }
            default: break
            }
        }

        /// Reads on a separate thread, and stops the client once the gateway has all lines.
        func read(into client: LongwireClient) {
            Thread.detachNewThread { [self] in
                while let line = readLine() {
                    lock.withLock {
                        while underWay >= Self.limit { lock.wait() }
                        underWay += 1
                    }
                    if !client.send(Array(line.utf8)) { lock.withLock { underWay -= 1 } }
                }
                lock.withLock { while underWay > 0 { lock.wait() } }
                client.stop()
            }
        }
    }

    static func configuration(
        _ arguments: ParsedArguments, _ context: CommandContext
    ) throws(CommandFailure) -> ClientConfiguration {
        let credentials = try Credentials(arguments, context)
        let device = try credentials.device()
        let port = try arguments.number("port", in: 1...65_535).map { UInt16($0) }
        var configuration = ClientConfiguration(
            host: arguments.text("host").map(Credentials.unbracketed) ?? device.host, port: port ?? device.port,
            appID: try credentials.appID(), appSecret: credentials.appSecret)
        configuration.clientName = "longwire-cli/\(CommandLineTool.version)"
        // The command simulates a phone, whose platform follows from its tokens.
        configuration.attributes?.platform = .unknown
        configuration.usesTLS = arguments.has("tls")
        if configuration.usesTLS {
            let trust = credentials.trust
            configuration.trustedCertificatesPath = trust.authoritiesFile
            configuration.clientCertificatePath = trust.certificateFile
            configuration.clientKeyPath = trust.keyFile
        } else if let option = ["ca", "cert", "key"].first(where: { arguments.text($0) != nil }) {
            // The environment variables may be set for other commands, so only options are refused.
            throw .usage("--\(option) is for TLS; give --tls, too")
        }
        let states: [(String, ApplicationState)] = [
            ("foreground", .foreground), ("background", .background), ("terminated", .terminated),
        ]
        configuration.applicationState = try arguments.choice("state", states) ?? .foreground
        configuration.keepsRunning = arguments.has("keeps-running")
        configuration.reconnects = !arguments.has("no-reconnect")
        if let badge = try arguments.number("badge", in: 0...Int64(Int32.max)) { configuration.badge = Int32(badge) }
        if let seconds = try arguments.number("heartbeat", in: 30...1_800) {
            configuration.heartbeatSeconds = UInt32(seconds)
        }
        let environments: [(String, VendorToken.Environment)] = [("production", .production), ("sandbox", .sandbox)]
        let environment = try arguments.choice("environment", environments) ?? .production
        let channel = try arguments.choice("channel", channels) ?? .apns
        configuration.tokens = try tokens(arguments).map { token in
            var token = token
            (token.channel, token.environment, token.topic) = (channel, environment, arguments.text("topic") ?? "")
            return token
        }
        if configuration.tokens.isEmpty,
            ["environment", "topic", "channel"].contains(where: { arguments.text($0) != nil })
        {
            throw .usage("--environment, --topic and --channel describe a token; give --token, too")
        }
        return configuration
    }

    private static let channels = VendorChannel.allCases.map { ("\($0.name)", $0) }

    private static func tokens(_ arguments: ParsedArguments) throws(CommandFailure) -> [VendorToken] {
        var tokens: [VendorToken] = []
        let kinds: [(String, VendorToken.Kind)] = [
            ("token", .alert), ("voip-token", .voip), ("start-token", .liveActivityStart),
        ]
        for (option, kind) in kinds {
            if let token = arguments.text(option) { tokens.append(VendorToken(kind: kind, token: token)) }
        }
        for text in arguments.all("activity-token") {
            let parts = text.split(separator: "=", maxSplits: 1)
            guard parts.count == 2 else { throw .usage("--activity-token is \(text); it must be NAME=HEX") }
            tokens.append(VendorToken(kind: .liveActivity, token: String(parts[1]), activity: String(parts[0])))
        }
        guard arguments.all("activity-token").count <= 8 else {
            throw .usage("--activity-token is given at most 8 times")
        }
        return tokens
    }

    private static func openedMessages(_ arguments: ParsedArguments) throws(CommandFailure) -> [MessageID] {
        var ids: [MessageID] = []
        for text in arguments.all("opened") {
            guard let id = MessageID(text) else {
                throw .usage("--opened is \(text); it must be 32 lower-case hex digits")
            }
            ids.append(id)
        }
        guard ids.count <= 32 else { throw .usage("--opened is given \(ids.count) times; at most 32") }
        return ids
    }

    private static func stopOnSignals(_ client: LongwireClient) -> [any DispatchSourceSignal] {
        [SIGINT, SIGTERM].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { client.stop() }
            source.resume()
            return source
        }
    }
}
