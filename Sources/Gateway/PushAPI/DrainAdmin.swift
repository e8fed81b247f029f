/// An operator's request to drain a gateway's devices.
internal import JSON
internal import TextForms

package enum DrainRequest: Sendable, Equatable {
    /// Closes `pace` sessions a second, with `alternate` in their Close frames if it is not empty.
    case begin(pace: Int, alternate: String)
    /// Ends the drain; devices may connect again.
    case undo
}

package struct DrainStatus: Sendable, Equatable {
    package enum State: String, Sendable { case none, draining, drained }
    package var state = State.none
    package var pace = 0
    package var alternate = ""
    package var connections = 0
    /// The number of sessions and relays that the drain has closed.
    package var toldCount = 0
    package var secondsLeft = 0
    package init() {}
}

package enum DrainAnswer {
    package static func status(_ status: DrainStatus) -> APIResponse {
        let state: JSONObject = ["state": status.state.rawValue, "connections": status.connections]
        guard status.state != .none else { return .object(state) }
        return .object(
            state + [
                "pace": status.pace, "told": status.toldCount, "secondsLeft": status.secondsLeft,
                "alternate": status.alternate.unlessEmpty,
            ])
    }
}

extension StrictObject {
    /// Parses the body of `POST /v1/drain`.
    static func deviceDrain(_ body: JSONValue) throws(AdminFault) -> DrainRequest {
        let fields = try StrictObject(body, known: ["pace", "alternate", "undo"])
        if let undo = body["undo"] {
            guard let isUndone = undo.bool else { throw .invalid("undo is true or false") }
            if isUndone { return .undo }
        }
        guard let pace = try fields.integer("pace", in: 1...Int64(Limits.drainPace)) else {
            throw .invalid("pace is missing: the number of devices to disconnect a second, 1 to \(Limits.drainPace)")
        }
        let alternate = try fields.text("alternate") ?? ""
        guard alternate.isEmpty || isAddress(alternate) else {
            throw .invalid(
                "alternate is host:port, as devices reach it, with at most \(Limits.alternateByteCount) bytes")
        }
        return .begin(pace: Int(pace), alternate: alternate)
    }

    /// Whether clients accept the text: a name or address, IPv6 in brackets, and a port.
    private static func isAddress(_ text: String) -> Bool {
        guard text.utf8.count <= Limits.alternateByteCount, let colon = text.lastIndex(of: ":"),
            let port = UInt16(text[text.index(after: colon)...]), port > 0
        else { return false }
        var host = text[..<colon]
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        if isBracketed { host = host.dropFirst().dropLast() }
        return !host.isEmpty && host.isPlain(with: isBracketed ? ".-_:" : ".-_")
    }
}
