// The conformance driver of LongwireClient: reads commands, prints events (Tests/Conformance/README.md).
import Foundation
import LongwireClient
import Wire

/// A JSON value of an event.
enum Value: CustomStringConvertible {
    case text(String)
    case number(UInt64)
    case flag(Bool)
    case texts([String])
    case null

    var description: String {
        switch self {
        case .text(let text): Value.quoted(text)
        case .number(let number): String(number)
        case .flag(let flag): flag ? "true" : "false"
        case .texts(let texts): "[\(texts.map(Value.quoted).joined(separator: ", "))]"
        case .null: "null"
        }
    }

    private static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\" + String(scalar)
            case _ where scalar.value < 0x20:
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

/// The standard output; each event is one write, because a kill must not leave half a line of an earlier event.
enum Output {
    private static let lock = NSLock()

    static func say(_ event: String, _ fields: [(String, Value)] = []) {
        let pairs = [("event", Value.text(event))] + fields
        let line = pairs.map { "\(Value.text($0.0)): \($0.1)" }.joined(separator: ", ")
        lock.lock()
        defer { lock.unlock() }
        FileHandle.standardOutput.write(Data("{\(line)}\n".utf8))
    }

    static func say(_ message: ReceivedMessage) {
        var fields: [(String, Value)] = [
            ("msgId", .text("\(message.messageID)")), ("taskId", .text("\(message.taskID)")),
            ("sequence", .number(message.sequence)),
            ("payload", .text(Data(message.payload).base64EncodedString())), ("offline", .flag(message.isOffline)),
            ("kind", .text(message.stream == 1 ? "broadcast" : "message")),
        ]
        if let alert = message.alert { fields += [("title", .text(alert.title)), ("body", .text(alert.body))] }
        say("message", fields)
    }

    static func say(_ event: ClientEvent) {
        switch event {
        case .registered(let cid): say("registered", [("cid", .text("\(cid)"))])
        case .registrationLost(let cid): say("registrationLost", [("cid", .text("\(cid)"))])
        case .connecting(let host, let port):
            let name = host.contains(":") ? "[\(host)]" : host
            say("connecting", [("address", .text("\(name):\(port)"))])
        case .welcomed(let details): say(details)
        case .queueReset(let from, let to): say("queueReset", [("from", .number(from)), ("to", .number(to))])
        case .closed(let code, let reason):
            say("closed", [("code", .number(UInt64(code))), ("reason", .text(reason))])
        case .disconnected(let reason): say("disconnected", [("reason", .text(reason))])
        case .retrying(let delay): say("retrying", [("ms", .number(UInt64(max(0, delay))))])
        case .updated(let request, let code, _):
            say("updated", [("request", .number(UInt64(request))), ("code", .number(UInt64(code)))])
        case .suppressed(let message, let sequence, let wasOpened):
            say(
                "suppressed",
                [("msgId", .text("\(message)")), ("sequence", .number(sequence)), ("wasOpened", .flag(wasOpened))])
        case .revoked(let task): say("revoked", [("taskId", .text("\(task)"))])
        case .messageTaken(let message): say("taken", [("request", .number(UInt64(message.number)))])
        case .messageRefused(let message, let code, _):
            say("refused", [("request", .number(UInt64(message.number))), ("code", .number(UInt64(code)))])
        case .namesAnswered(let answer):
            say(
                "names",
                [
                    ("code", .number(UInt64(answer.code))), ("alias", answer.names?.alias.map { .text($0) } ?? .null),
                    ("tags", .texts(answer.names?.tags ?? [])),
                ])
        case .stateNotStored(let error): say("stateNotStored", [("reason", .text("\(error)"))])
        case .stopped(let error): say("stopped", [("reason", error.map { Value.text("\($0)") } ?? .null)])
        default: break
        }
    }

    private static func say(_ details: WelcomeDetails) {
        say(
            "welcomed",
            [
                ("cid", .text("\(details.cid)")), ("session", .number(details.generation)),
                ("epoch", .number(details.queueEpoch)), ("heartbeat", .number(UInt64(details.heartbeatSeconds))),
                ("window", .number(UInt64(details.window))), ("serverTime", .number(details.serverTime)),
                ("pending", .number(details.backlog)),
            ])
    }
}

/// The options of the command line.
struct Options {
    var configuration: ClientConfiguration
    var state: String
    var isManual = false

    /// Stops the program with a text for an option that is unknown or incomplete.
    init(_ words: [String]) {
        var values: [String: String] = [:]
        var index = 0
        while index < words.count {
            let name = words[index]
            index += 1
            switch name {
            case "--manual": isManual = true
            // LongwireClient always follows an alternate.
            case "--alternates-from-close": break
            default:
                guard name.hasPrefix("--"), index < words.count else { fatalError("\(name) has no value") }
                values[name] = words[index]
                index += 1
            }
        }
        guard let address = values["--address"], let colon = address.lastIndex(of: ":"),
            let port = UInt16(address[address.index(after: colon)...]), let app = values["--app"],
            let folder = values["--state"], let transport = values["--transport"],
            values["--secret"] != nil || values["--token"] != nil
        else {
            fatalError(
                "usage: --address HOST:PORT --transport tcp|tls --app ID --secret SECRET|--token TOKEN --state FOLDER")
        }
        configuration = ClientConfiguration(
            host: String(address[..<colon]), port: port, appID: app, appSecret: values["--secret"] ?? "")
        configuration.registrationToken = values["--token"] ?? ""
        switch transport {
        case "tcp": break
        case "tls": configuration.usesTLS = true
        default: fatalError("LongwireClient has no transport \(transport)")
        }
        configuration.trustedCertificatesPath = values["--ca"]
        configuration.window = values["--window"].flatMap { UInt32($0) } ?? 0
        configuration.heartbeatSeconds = values["--heartbeat"].flatMap { UInt32($0) } ?? 0
        state = folder + "/longwire.state"
    }
}

/// A command `finish`, for the loop that has the message.
struct Finish: Sendable {
    var message: MessageID
    var verdict: MessageVerdict
}

/// A command `names`, which calls the client's methods for aliases and tags.
struct NamesCall: Sendable {
    var operation: String
    var alias: String
    var aliasType: String
    var tags: [String]
    var token: String?

    init(_ fields: [String: Any]) {
        operation = fields["operation"] as? String ?? ""
        alias = fields["alias"] as? String ?? ""
        aliasType = fields["aliasType"] as? String ?? ""
        tags = fields["tags"] as? [String] ?? []
        token = fields["token"] as? String
    }

    /// Makes the call.
    ///
    /// The handler of the client's events prints the gateway's answer.
    func make(on client: LongwireClient) async {
        do throws(LongwireClientError) {
            switch operation {
            case "query": _ = try await client.ownNames(aliasType: aliasType)
            case "bindAlias":
                if let token {
                    try await client.bindAlias(token: token)
                } else {
                    try await client.bindAlias(alias, type: aliasType)
                }
            case "unbindAlias": try await client.unbindAlias(alias, type: aliasType)
            case "setTags": try await client.setTags(tags)
            case "addTags": try await client.addTags(tags)
            case "removeTags": try await client.removeTags(tags)
            default: fatalError("unknown operation \(operation)")
            }
        } catch {
            if error.code == .wrongState { Output.say("names", [("code", .null)]) }
        }
    }
}

/// Runs the commands of the standard input.
struct Commands {
    let client: LongwireClient
    let finishes: AsyncStream<Finish>.Continuation
    private let names: AsyncStream<NamesCall>.Continuation

    init(client: LongwireClient, finishes: AsyncStream<Finish>.Continuation) {
        let (calls, names) = AsyncStream.makeStream(of: NamesCall.self)
        (self.client, self.finishes, self.names) = (client, finishes, names)
        // One task makes all calls, because separate tasks could change their order.
        Task.detached { for await call in calls { await call.make(on: client) } }
    }

    func runAll() {
        while let line = readLine() {
            guard let parsed = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any],
                let name = parsed["do"] as? String
            else { fatalError("a line that is no command: \(line)") }
            run(name, parsed)
        }
    }

    private func run(_ name: String, _ fields: [String: Any]) {
        let message = (fields["msgId"] as? String).flatMap { MessageID($0) }
        switch name {
        case "finish":
            guard let message else { fatalError("finish without msgId") }
            let reason = fields["reason"] as? String ?? ""
            let isRejected = fields["verdict"] as? String == "rejected"
            finishes.yield(Finish(message: message, verdict: isRejected ? .rejected(reason: reason) : .processed))
        case "send":
            let payload = (fields["payload"] as? String).flatMap { Data(base64Encoded: $0) } ?? Data()
            let task: TaskID = (fields["task"] as? String).flatMap { TaskID($0) } ?? TaskID.none
            if !client.send([UInt8](payload), answering: task) {
                Output.say("refused", [("request", .number(0)), ("code", .number(0))])
            }
        case "opened":
            guard let message else { fatalError("opened without msgId") }
            client.markOpened(message)
        case "report":
            guard let message else { fatalError("report without msgId") }
            switch fields["kind"] as? String {
            case "shown": client.report(.shown(message))
            case "clicked": client.markOpened(message)
            default: client.report(.action(UInt32(clamping: fields["action"] as? Int ?? 0), message))
            }
        case "foreground": client.setApplicationState(.foreground)
        case "background":
            client.setApplicationState(.background, keepsRunning: fields["keepsRunning"] as? Bool ?? false)
        case "network": client.networkChanged(named: fields["name"] as? String)
        case "token":
            let vendor = fields["vendor"] as? String
            guard let channel = VendorChannel.allCases.first(where: { "\($0)" == vendor }) else {
                fatalError("unknown vendor \(vendor ?? "")")
            }
            client.setToken(VendorToken(channel: channel, token: fields["token"] as? String ?? ""))
        case "badge": client.setBadge(Int32(clamping: fields["value"] as? Int ?? 0))
        case "push-mode": client.setPushModeOff(fields["off"] as? Bool ?? false)
        case "attributes":
            var attributes = DeviceAttributes()
            attributes.model = fields["model"] as? String ?? ""
            attributes.locale = fields["locale"] as? String ?? ""
            attributes.notificationPermission = fields["allowed"] as? Bool == true ? .allowed : .denied
            client.setAttributes(attributes)
        case "heartbeat": client.setHeartbeat(seconds: UInt32(clamping: fields["seconds"] as? Int ?? 0))
        case "names": names.yield(NamesCall(fields))
        case "stop": client.stop()
        default: Output.say("unsupported", [("do", .text(name))])
        }
    }
}

func start(_ client: LongwireClient) {
    do {
        try client.start()
    } catch {
        Output.say("stopped", [("reason", .text("\(error)"))])
    }
}

/// Runs a client whose handler prints and finishes each message, until the end of the standard input.
func runWithHandler(_ options: Options) {
    let (_, finishes) = AsyncStream.makeStream(of: Finish.self)
    let client = LongwireClient(
        configuration: options.configuration, store: FileStateStore(path: options.state),
        events: { Output.say($0) },
        handler: {
            Output.say($0)
            return .processed
        })
    start(client)
    Commands(client: client, finishes: finishes).runAll()
    client.stop()
    client.waitUntilStopped()
}

/// Runs a client whose messages wait for the command `finish`, one at a time, until the end of the standard input.
func runManually(_ options: Options) {
    let client = LongwireClient(
        configuration: options.configuration, store: FileStateStore(path: options.state))
    let (decided, finishes) = AsyncStream.makeStream(of: Finish.self)
    Task.detached { for await event in client.events { Output.say(event) } }
    Task.detached {
        var iterator = decided.makeAsyncIterator()
        for await message in client.messages {
            Output.say(message)
            while let finish = await iterator.next() {
                guard finish.message == message.messageID else { continue }
                client.finish(message, finish.verdict)
                break
            }
        }
    }
    start(client)
    Commands(client: client, finishes: finishes).runAll()
    client.stop()
    client.waitUntilStopped()
}

let options = Options(Array(CommandLine.arguments.dropFirst()))
if options.isManual { runManually(options) } else { runWithHandler(options) }
