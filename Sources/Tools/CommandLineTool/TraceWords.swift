internal import TextForms

/// A trace in sentences: each step with its local time, then the reason why the message waits or how it ended.
struct TraceWords {
    let display: Display
    private let trace: Fields
    /// The device's current state, or `nil` if unknown.
    private let device: Fields?

    init(_ trace: Fields, device: Fields?, _ display: Display) {
        (self.trace, self.device, self.display) = (trace, device, display)
    }

    private var state: String { trace.text("state") ?? "" }
    private var acceptedAt: Int64 { trace.number("acceptedAt") ?? 0 }

    var lines: [String] {
        var lines = [
            "Message \(display.paint(trace.text("msgId") ?? "", .strong)) of task \(trace.text("taskId") ?? "")",
            "for device \(trace.text("cid") ?? "") of app \(trace.text("appId") ?? ""), strategy \(trace.number("strategy") ?? 0)",
        ]
        var lastDay = ""
        for step in trace.list("steps") {
            let time = step.number("time") ?? 0
            let day = String(Display.time(time).prefix(10))
            if day != lastDay { lines.append(display.paint(day, .faint)) }
            lastDay = day
            let clock = Display.time(time, isWithDay: false)
            let later = time > acceptedAt ? "  (after \(Display.duration(time - acceptedAt)))" : ""
            lines.append("  \(clock)  \(sentence(step))\(display.paint(later, .faint))")
        }
        return lines + [conclusion]
    }

    var summary: [String] {
        [Display.time(acceptedAt), trace.text("msgId") ?? "", painted, reason ?? ""]
    }

    private var painted: String {
        switch state {
        case "delivered", "deliveredOffline", "opened", "handedOff": display.paint(state, .good)
        case "pending": display.paint(state, .waiting)
        default: display.paint(state, .bad)
        }
    }

    private func sentence(_ step: Fields) -> String {
        let detail = step.text("detail").flatMap { $0.isEmpty ? nil : $0 }
        let because = detail.map { ": \($0)" } ?? ""
        switch step.text("event") ?? "" {
        case "accepted":
            return trace.flag("offline")
                ? "The gateway accepted it and wrote it to disk."
                : "The gateway accepted it, while the device was reachable."
        case "sent": return "It went out on the device's connection."
        case "timedOut": return "The device did not ack it in time."
        case "jobDue": return "Its job for the vendor became due."
        case "leased": return "A sender service leased the job."
        case "leaseLapsed": return "The sender service gave no result before the lease ended."
        case "vendorAccepted": return "The vendor accepted it\(detail.map { " as \($0)" } ?? "")."
        case "vendorRetry": return "The vendor asked for another attempt\(because)."
        case "vendorRejected": return "The vendor refused it\(because)."
        case "badToken": return "The vendor does not know the device's token any more\(because)."
        case "exhausted": return "The last attempt that the app's maxAttempts allows has failed."
        case "cancelled": return "Its job ended\(because.isEmpty ? " with the message" : because)."
        case "alertedTwice": return "The vendor accepted it although the device had it already."
        case "opened": return "The user opened the notification."
        case "shown": return "The device showed the notification."
        case "acked": return "The device acked it."
        case "ended": return "It ended as \(state)\(trace.text("reason").map { ": \($0)" } ?? "")."
        case "action": return "The client reported the action \(detail ?? "")."
        case "unsent": return "The sender service gave the job back, and the vendor never got it\(because)."
        case "followedUp": return "The message had not arrived, and its job moved to the follow-up channel."
        default: return "\(step.text("event") ?? "")\(because)"
        }
    }

    private var conclusion: String {
        switch state {
        case "delivered": return display.paint("Delivered: the device has it.", .good)
        case "deliveredOffline": return display.paint("Delivered late: the device has it, flagged offline.", .good)
        case "opened": return display.paint("Opened from the notification.", .good)
        case "handedOff": return display.paint("Handed off: the vendor has it; nothing more comes of it here.", .good)
        case "pending":
            return display.paint("Pending until \(Display.time(trace.number("expiresAt") ?? 0)). ", .waiting)
                + (reason ?? "")
        default: return display.paint("Not delivered: \(state). ", .bad) + (reason ?? "")
        }
    }

    var reason: String? {
        if let why = trace.text("reason"), !why.isEmpty { return Self.explained(why) }
        switch state {
        case "delivered", "deliveredOffline", "opened", "handedOff": return nil
        case "expired": return "Its time to live passed first. " + waits
        case "collapsed": return "A newer message with its collapse_key took its place."
        case "revoked": return "The publisher withdrew it."
        case "overflowed": return "The device's queue was full, and its oldest message was removed."
        case "pending": return waits
        default: return nil
        }
    }

    private var waits: String {
        let events = Set(trace.list("steps").compactMap { $0.text("event") })
        var parts: [String] = []
        if let device {
            if device.flag("appDisabled") { parts.append("The app is disabled: it is not served.") }
            if device.flag("pushModeOff") {
                parts.append("The user switched pushes off.")
            } else if !device.flag("connected") {
                let seen = device.number("lastSeenAt") ?? 0
                parts.append("The device is not connected\(seen > 0 ? ", last seen \(Display.time(seen))" : "").")
            } else if device.flag("suspect") {
                parts.append("The device is connected but does not ack.")
            } else if !device.flag("reachable") {
                parts.append("The app is in the \(device.text("state") ?? "background").")
            } else {
                parts.append("The device is connected.")
            }
        }
        let why = trace.text("vendorReason").flatMap { $0.isEmpty ? nil : $0 }
        let handoff = trace.list("steps").last {
            ["leased", "leaseLapsed", "unsent", "vendorRetry"].contains($0.text("event") ?? "")
        }
        switch trace.text("alert") ?? "" {
        case "none": parts.append("It has no alert: \(Self.explained(trace.text("fallbackReason") ?? "")).")
        case "armed": parts.append("Its alert follows when the live deadline passes.")
        case "due" where handoff?.text("event") == "unsent":
            let detail = handoff?.text("detail").flatMap { $0.isEmpty ? nil : ": \(Self.explained($0))" } ?? ""
            parts.append("The sender service gave its job back unsent\(detail).")
        case "due" where events.contains("leaseLapsed"):
            parts.append(
                "The sender service that leased its job gave no result, and no other has leased it: is one running?")
        case "due" where events.contains("leased"):
            parts.append("Its job waits for another attempt\(why.map { ": \($0)" } ?? "").")
        case "due": parts.append("No sender service has leased its job: is one running?")
        case "leased": parts.append("A sender service has its job.")
        case "accepted": parts.append("The vendor accepted its alert.")
        case "refused": parts.append("The vendor refused its alert\(why.map { ": \($0)" } ?? "").")
        default: break
        }
        return parts.joined(separator: " ")
    }

    static func explained(_ word: String) -> String {
        switch word {
        case "appDisabled": "the app is disabled (appDisabled)"
        case "tokenQuarantined": "the vendor does not know the device's token any more (tokenQuarantined)"
        case "tokenMoved": "the device's token is now registered by another device of the app (tokenMoved)"
        case "noToken": "the device has no usable token of the content's platform (noToken)"
        case "noContent": "the publish has no content for the vendor (noContent)"
        case "strategy": "its strategy is live only (strategy)"
        case "timeToLive": "a TTL of 0 is one live attempt (timeToLive)"
        case "pushModeOff": "the user switched pushes off (pushModeOff)"
        case "purged": "an operator purged the device's queue (purged)"
        case "stopped": "the task was stopped (stopped)"
        case "queueFull": "the device's queue is full (queueFull)"
        case "blacklisted": "the device is on the blacklist (blacklisted)"
        case "inactive": "the device was not seen for so long that it counts as gone (inactive)"
        case "unknownDevice": "the app has no such device (unknownDevice)"
        case "requestConflict": "the request id was used before with another body (requestConflict)"
        case "tooLarge": "the message is larger than the store takes (tooLarge)"
        case "noCredential": "no credential of the sender service serves the app (noCredential)"
        case "notLeased": "no sender service leased its job (notLeased)"
        case "exhausted": "all attempts at the vendor failed (exhausted)"
        case "rejectedByClient": "the app refused it (rejectedByClient)"
        default: word
        }
    }

    static func refusal(_ refusal: Fields) -> String {
        "\(Display.time(refusal.number("time") ?? 0))  A publish for \(refusal.text("cid") ?? "") was refused: "
            + "\(explained(refusal.text("reason") ?? ""))."
    }
}
