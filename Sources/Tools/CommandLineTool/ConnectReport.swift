internal import Foundation
internal import LongwireClient
internal import Wire

/// The JSON lines of `longwire connect`.
enum ConnectReport {
    static func line(for message: ReceivedMessage) -> JSONText {
        var members: [(String, JSONText)] = [
            ("event", .string("message")), ("msgId", .string(message.messageID.description)),
            ("taskId", .string(message.taskID.text)), ("stream", .unsigned(UInt64(message.stream))),
            ("sequence", .unsigned(message.sequence)), ("offline", .bool(message.isOffline)),
            ("acceptedAt", .unsigned(message.acceptedAt)), ("alertedAt", .unsigned(message.alertedAt)),
            ("attempt", .unsigned(UInt64(message.attempt))),
        ]
        if !message.collapseKey.isEmpty { members.append(("collapseKey", .string(message.collapseKey))) }
        if let alert = message.alert {
            members.append(("alert", .object([("title", .string(alert.title)), ("body", .string(alert.body))])))
        }
        if let text = String(validating: message.payload, as: UTF8.self) {
            members.append(("payload", .string(text)))
        } else {
            members.append(("payloadBase64", .string(Data(message.payload).base64EncodedString())))
        }
        return .object(members)
    }

    /// `nil`: not worth a line.
    static func line(for event: ClientEvent) -> JSONText? {
        switch event {
        case .registered(let cid): make("registered", [("cid", .string(cid.description))])
        case .registrationLost(let cid): make("registrationLost", [("cid", .string(cid.description))])
        case .connecting(let host, let port):
            make("connecting", [("host", .string(host)), ("port", .unsigned(UInt64(port)))])
        case .welcomed(let welcome): line(for: welcome)
        case .queueReset(let old, let new): make("queueReset", [("from", .unsigned(old)), ("to", .unsigned(new))])
        case .closed(let code, let reason):
            make(
                "closed",
                [
                    ("code", .unsigned(UInt64(code))),
                    ("name", CloseCode(rawValue: code).map { .string("\($0)") } ?? .null), ("reason", .string(reason)),
                ])
        case .disconnected(let reason): make("disconnected", [("reason", .string(reason))])
        case .retrying(let milliseconds): make("retry", [("afterMilliseconds", .integer(milliseconds))])
        case .updated(let request, let code, let reason):
            make(
                "updated",
                [
                    ("request", .unsigned(UInt64(request))), ("code", .unsigned(UInt64(code))),
                    ("reason", .string(reason)),
                ])
        case .suppressed(let id, let sequence, let wasOpened):
            make(
                "suppressed",
                [
                    ("msgId", .string(id.description)), ("sequence", .unsigned(sequence)),
                    ("why", .string(wasOpened ? "opened" : "processed")),
                ])
        case .droppedWhileSuspended(let id, let sequence):
            make("dropped", [("msgId", .string(id.description)), ("sequence", .unsigned(sequence))])
        case .revoked(let task): make("revoked", [("taskId", .string(task.text))])
        case .messageTaken(let message):
            make("sent", [("request", .unsigned(UInt64(message.number)))])
        case .messageRefused(let message, let code, let reason):
            make(
                "sendRefused",
                [
                    ("request", .unsigned(UInt64(message.number))), ("code", .unsigned(UInt64(code))),
                    ("reason", .string(reason)),
                ])
        case .fetched: nil
        case .stateNotStored(let error): make("stateNotStored", [("error", .string(error.description))])
        case .stopped(let error): make("stopped", [("error", error.map { .string($0.description) } ?? .null)])
        }
    }

    private static func line(for welcome: WelcomeDetails) -> JSONText {
        make(
            "welcome",
            [
                ("cid", .string(welcome.cid.description)), ("generation", .unsigned(welcome.generation)),
                ("queueEpoch", .unsigned(welcome.queueEpoch)),
                ("heartbeatSeconds", .unsigned(UInt64(welcome.heartbeatSeconds))),
                ("window", .unsigned(UInt64(welcome.window))), ("serverTime", .unsigned(welcome.serverTime)),
                ("backlog", .unsigned(welcome.backlog)),
                ("dropped", .object(welcome.dropped.map { ($0.reason, .unsigned($0.count)) })),
            ])
    }

    private static func make(_ event: String, _ members: [(String, JSONText)]) -> JSONText {
        .object([("event", .string(event))] + members)
    }
}
