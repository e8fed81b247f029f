// `POST /v2/{appId}/receipt`: a device's reports about messages, sent without a connection. The caller is a device's service
// extension and has no token: the device's secret proves the call (docs/Semantics.md, "Receipts").

internal import Quotas
package import Delivery
internal import JSON
package import Wire

/// A parsed receipt; the device's loop checks its proof.
package struct ReceiptRequest: Sendable {
    private let device: DeviceAddress
    private let timestamp: UInt64
    private let transcript: [UInt8]
    private let proof: [UInt8]
    package let events: [ReceiptEvent]
    package let form: Form
    package var app: AppKey { device.app }

    /// The part of a request that its answer needs.
    package struct Form: Sendable {
        /// Invalid events, by index; the other events are recorded.
        var refused: [PushForm.Refused] = []
        var notes = RequestNotes()
        package init() {}
    }

    fileprivate init(
        device: DeviceAddress, timestamp: UInt64, transcript: [UInt8], proof: [UInt8], events: [ReceiptEvent],
        form: Form
    ) {
        (self.device, self.timestamp, self.transcript, self.proof) = (device, timestamp, transcript, proof)
        (self.events, self.form) = (events, form)
    }

    package func command(origin: Origin) -> ReceiptCommand {
        ReceiptCommand(
            origin: origin, app: device.app, bucket: device.bucket, cid: device.cid, timestamp: timestamp,
            transcript: transcript, proof: proof, events: events)
    }

    /// Returns the bytes covered by a receipt's proof: "longwire receipt 1" ‖ 0 ‖ appId ‖ 0 ‖ the raw body.
    package static func transcript(appID: String, body: some Collection<UInt8>) -> [UInt8] {
        Array("longwire receipt 1\0\(appID)\0".utf8) + body
    }

    /// Returns the answer to a call; an invalid event has the result `ignored`, which every client knows, and is listed beside
    /// the results.
    package static func answer(_ answer: ReceiptAnswer, form: Form = Form()) -> APIResponse {
        switch answer {
        case .taken(let verdicts):
            var words = verdicts.map { "\($0)" }
            for item in form.refused { words.insert("\(EventVerdict.ignored)", at: item.itemIndex) }
            let data: JSONObject = ["results": words]
            return .success(data, longwire: form.notes.members + PushAnswer.members(form.refused))
        case .refused:
            let text = "this proof is of no device of this app: sign with the device's secret, or register anew"
            return .getui(.badProof, text)
        case .clockSkew(let serverTime):
            let text = "timestamp is too far from serverTime, correct it by the difference and repeat once"
            let data: JSONObject = ["serverTime": serverTime]
            return .object(
                status: GetuiCode.clockSkew.httpStatus, .envelope(.clockSkew, text) + ["data": data])
        case .busy: return .busy
        }
    }

}

extension GetuiFault {
    static let receiptsSpent = GetuiFault(code: .callRate, message: "receipts of this minute are used up")
}

extension PublicAPI {
    func receipt(_ request: APIRequest, appID: String, now: GatewayTime) throws(GetuiFault) -> ReceiptRequest {
        let app = try served(appID)
        try takeOfNetwork(request, app, now: now)
        guard let proof = request.proof.flatMap(Self.digest) else {
            throw GetuiFault(
                code: .badProof, message: "the header X-Longwire-Proof is missing, or is not 64 hex digits")
        }
        // The HTTP server does not ask `judge` about a small body that arrives with the head, so the size is checked here, too.
        guard request.body.count <= Limits.openBodyByteCount else {
            throw .size("body", "at most \(Limits.openBodyByteCount) bytes")
        }
        guard let body = try parameters(request, .receipt) else { throw .null("cid") }
        guard let cidValue = body["cid"] else { throw .null("cid") }
        guard let cidText = cidValue.stringBytes else { throw .type("cid") }
        guard let cid = DeviceID(hex: cidText) else { throw .invalid("cid", "32 hex digits") }
        guard let timestampValue = body["timestamp"] else { throw .null("timestamp") }
        guard let timestamp = timestampValue.lenientInteger else { throw .type("timestamp") }
        guard Self.times.contains(timestamp) else { throw .invalid("timestamp", "milliseconds since 1970") }
        var form = ReceiptRequest.Form()
        let events = try events(body["events"], &form.refused)
        form.notes = messages.notes
        if let rates, rates.isSpent(.receipt, app: app.key, limits: app.rates, now: now) { throw .receiptsSpent }
        return ReceiptRequest(
            device: DeviceAddress(app: app.key, bucket: app.bucket(of: cid), cid: cid), timestamp: UInt64(timestamp),
            transcript: ReceiptRequest.transcript(appID: appID, body: request.body), proof: proof, events: events,
            form: form)
    }

    /// Counts a receipt against its network address's share of the app's limit, before any other work for it.
    ///
    /// Calls from this machine are not counted, because a local proxy may forward the calls of all clients.
    private func takeOfNetwork(_ request: APIRequest, _ app: App, now: GatewayTime) throws(GetuiFault) {
        guard let rates, !request.peerIsLoopback else { return }
        let limit = app.rates.receiptsPerMinuteOfNetwork
        guard rates.takeReceipt(from: request.network, app: app.key, limit: limit, now: now) else {
            throw GetuiFault(code: .callRate, message: "receipts of this minute from this address are used up")
        }
    }

    /// Counts a proven receipt, so that unauthenticated calls use up nothing of the devices' limit.
    package func proved(_ app: AppKey, now: GatewayTime) {
        guard let rates, let app = registry[app] else { return }
        _ = rates.take(.receipt, app: app.key, limits: app.rates, now: now)
    }

    /// Milliseconds that a JSON number can represent exactly.
    private static let times: ClosedRange<Int64> = 0...(1 << 52)

    private static func digest(_ hex: UnsafeRawBufferPointer) -> [UInt8]? {
        guard hex.count == 64 else { return nil }
        var bytes: [UInt8] = []
        for place in stride(from: 0, to: 64, by: 2) {
            guard let high = hexValue(hex[place]), let low = hexValue(hex[place + 1]) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    /// Returns the valid events and adds the others to `refused`.
    ///
    /// - Throws: The first event's fault if all are invalid.
    private func events(_ list: JSONValue?, _ refused: inout [PushForm.Refused]) throws(GetuiFault) -> [ReceiptEvent] {
        guard let list else { throw .null("events") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("events") }
        guard list.hasContent else { throw .empty("events") }
        var events: [ReceiptEvent] = []
        var firstFault: GetuiFault?
        for (index, item) in list.elements.enumerated() {
            guard index < Limits.receiptEventCount else {
                throw .size("events", "at most \(Limits.receiptEventCount)")
            }
            do throws(GetuiFault) {
                guard item.kind == .object else { throw .type("events") }
                try messages.check(item, .receiptEvent, of: parser)
                events.append(try event(item))
            } catch {
                firstFault = firstFault ?? error
                refused.append(PushForm.Refused(itemIndex: index, code: error.code, message: error.message))
            }
        }
        if events.isEmpty, let firstFault { throw firstFault }
        return events
    }

    private func event(_ item: JSONValue) throws(GetuiFault) -> ReceiptEvent {
        guard let messageValue = item["msgId"] else { throw .null("msgId") }
        guard let messageText = messageValue.stringBytes else { throw .type("msgId") }
        guard let message = MessageID(hex: messageText) else { throw .invalid("msgId", "32 hex digits") }
        guard let name = item["event"] else { throw .null("event") }
        guard name.kind == .string else { throw .type("event") }
        var event: ReceiptEvent
        if name.equals("shown") {
            event = ReceiptEvent(kind: .shown, message: message)
        } else if name.equals("opened") {
            event = ReceiptEvent(kind: .opened, message: message)
        } else if name.equals("action") {
            guard let value = item["action"] else { throw .null("action") }
            guard let number = value.lenientInteger else { throw .type("action") }
            event = ReceiptEvent(kind: .action, message: message, action: UInt32(clamping: number))
        } else {
            throw .invalid("event", "shown, opened or action")
        }
        if let at = item["at"] {
            guard let time = at.lenientInteger else { throw .type("at") }
            guard Self.times.contains(time) else { throw .invalid("at", "milliseconds since 1970") }
            event.at = time
        }
        return event
    }
}
