internal import Foundation
internal import LongwireClient
internal import Wire

enum ConnectReport {
    static func line(for message: ReceivedMessage) -> JSONText {
        let text = String(validating: message.payload, as: UTF8.self)
        let alert = message.alert.map { ["title": $0.title, "body": $0.body] as JSONText }
        return [
            "event": "message", "msgId": message.messageID.description, "taskId": message.taskID.text,
            "stream": message.stream, "sequence": message.sequence, "offline": message.isOffline,
            "acceptedAt": message.acceptedAt, "alertedAt": message.alertedAt, "attempt": message.attempt,
            "collapseKey": message.collapseKey.isEmpty ? nil : message.collapseKey, "alert": alert, "payload": text,
            "payloadBase64": text == nil ? Data(message.payload).base64EncodedString() : nil,
        ]
    }

    /// Returns the line for an event, or `nil` if the event is not printed.
    static func line(for event: ClientEvent) -> JSONText? {
        switch event {
        case .registered(let cid): ["event": "registered", "cid": cid.description]
        case .registrationLost(let cid): ["event": "registrationLost", "cid": cid.description]
        case .connecting(let host, let port): ["event": "connecting", "host": host, "port": port]
        case .welcomed(let welcome): line(for: welcome)
        case .queueReset(let old, let new): ["event": "queueReset", "from": old, "to": new]
        case .closed(let code, let reason):
            [
                "event": "closed", "code": code,
                "name": CloseCode(rawValue: code).map { .string("\($0)") } ?? JSONText.null, "reason": reason,
            ]
        case .disconnected(let reason): ["event": "disconnected", "reason": reason]
        case .retrying(let milliseconds): ["event": "retry", "afterMilliseconds": milliseconds]
        case .updated(let request, let code, let reason):
            ["event": "updated", "request": request, "code": code, "reason": reason]
        case .suppressed(let id, let sequence, let wasOpened):
            [
                "event": "suppressed", "msgId": id.description, "sequence": sequence,
                "why": wasOpened ? "opened" : "processed",
            ]
        case .droppedWhileSuspended(let id, let sequence):
            ["event": "dropped", "msgId": id.description, "sequence": sequence]
        case .revoked(let task): ["event": "revoked", "taskId": task.text]
        case .messageTaken(let message): ["event": "sent", "request": message.number]
        case .messageRefused(let message, let code, let reason):
            ["event": "sendRefused", "request": message.number, "code": code, "reason": reason]
        case .namesAnswered(let answer):
            [
                "event": "names", "request": answer.request, "code": answer.code, "reason": answer.reason,
                "alias": answer.names?.alias.map { .string($0) } ?? JSONText.null,
                "tags": answer.names.map { .array($0.tags.map { .string($0) }) } ?? JSONText.null,
            ]
        case .fetched: nil
        case .stateNotStored(let error): ["event": "stateNotStored", "error": error.description]
        case .stopped(let error):
            ["event": "stopped", "error": error.map { .string($0.description) } ?? JSONText.null]
        }
    }

    private static func line(for welcome: WelcomeDetails) -> JSONText {
        [
            "event": "welcome", "cid": welcome.cid.description, "generation": welcome.generation,
            "queueEpoch": welcome.queueEpoch, "heartbeatSeconds": welcome.heartbeatSeconds, "window": welcome.window,
            "serverTime": welcome.serverTime, "backlog": welcome.backlog,
            "dropped": JSONText.object(welcome.dropped.map { ($0.reason, $0.count) }),
        ]
    }
}
