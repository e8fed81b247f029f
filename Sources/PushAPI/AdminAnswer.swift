// The admin listener's answers about devices and messages.

package import Delivery
package import Wire

package enum AdminAnswer {
    /// A device, or that there is none.
    package static func device(_ status: DeviceStatus?, at address: DeviceAddress, registry: AppRegistry) -> APIResponse
    {
        guard let status, status.app == address.app else {
            return AdminFault(.notFound, "no such device in this app").response
        }
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.key("appId")
        writer.string(registry.appID(of: status.app))
        writer.key("cid")
        writer.string(address.cid.description)
        writer.key("bucket")
        writer.integer(Int64(address.bucket.index))
        writer.key("connected")
        writer.bool(status.isConnected)
        writer.key("reachable")
        writer.bool(status.isReachable)
        writer.key("suspect")
        writer.bool(status.isSuspect)
        writer.key("state")
        writer.string(status.applicationState.name)
        writer.key("keepsRunning")
        writer.bool(status.keepsRunning)
        writer.key("generation")
        writer.integer(status.generation)
        writer.key("heartbeatSeconds")
        writer.integer(status.heartbeatSeconds)
        writer.key("lastSeenAt")
        writer.integer(status.lastSeenAt)
        writer.key("registeredAt")
        writer.integer(status.registeredAt)
        writer.key("queue")
        writer.beginObject()
        writer.key("messages")
        writer.integer(Int64(status.queuedMessageCount))
        writer.key("bytes")
        writer.integer(Int64(status.queuedByteCount))
        writer.key("inFlight")
        writer.integer(Int64(status.inFlightCount))
        writer.key("nextSequence")
        writer.integer(status.nextSequence)
        if let bounds = status.bounds {
            writer.key("messageLimit")
            writer.integer(Int64(bounds.messageCount))
            writer.key("byteLimit")
            writer.integer(Int64(bounds.byteCount))
        }
        writer.endObject()
        writer.key("badge")
        writer.integer(Int64(status.badge))
        writer.key("pushModeOff")
        writer.bool(status.pushModeOff)
        writer.key("blacklisted")
        writer.bool(status.isBlacklisted)
        writer.key("inactive")
        writer.bool(status.isInactive)
        if let names = status.names {
            write(names.aliases, as: "aliases", to: &writer)
            write(names.tags, as: "tags", to: &writer)
        }
        writer.key("tokens")
        writer.beginArray()
        for token in status.tokens { write(token, to: &writer) }
        writer.endArray()
        writeFallback(status, to: &writer)
        writer.endObject()
        return APIResponse(status: 200, body: writer.bytes)
    }

    private static func write(_ texts: [String], as name: StaticString, to writer: inout JSONWriter) {
        writer.key(name)
        writer.beginArray()
        for text in texts { writer.string(text) }
        writer.endArray()
    }

    /// Whether an alert could reach the device through APNs now, and what came of the last one.
    private static func writeFallback(_ status: DeviceStatus, to writer: inout JSONWriter) {
        let hasToken = status.tokens.contains { $0.kind == .alert && !$0.isQuarantined }
        let reason: StaticString? =
            if status.isBlacklisted {
                "blacklisted"
            } else if status.isInactive {
                "inactive"
            } else if status.pushModeOff {
                PublishOutcome.FallbackReason.pushModeOff.name
            } else {
                hasToken ? nil : PublishOutcome.FallbackReason.noToken.name
            }
        writer.key("fallback")
        writer.string(reason == nil ? "available" : "none")
        if let reason {
            writer.key("fallbackReason")
            writer.string(reason)
        }
        guard let failure = status.vendorFailure else { return }
        writer.key("vendorFailure")
        writer.beginObject()
        writer.key("msgId")
        writer.string(failure.message.description)
        writer.key("time")
        writer.integer(failure.at)
        writer.key("outcome")
        writer.string(failure.outcome.name)
        writer.key("attempts")
        writer.integer(Int64(failure.attempts))
        if !failure.reason.isEmpty {
            writer.key("reason")
            writer.string(failure.reason)
        }
        writer.endObject()
    }

    /// A token is a secret of the device: eight characters tell tokens apart and send nothing.
    private static func write(_ token: DeviceStatus.Token, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("channel")
        writer.string(token.channel.name)
        writer.key("kind")
        writer.string(token.kind.name)
        writer.key("environment")
        writer.string(token.environment.name)
        writer.key("topic")
        writer.string(token.topic)
        writer.key("token")
        writer.string(String(token.token.prefix(8)) + "…")
        if !token.activity.isEmpty {
            writer.key("activity")
            writer.string(token.activity)
        }
        writer.key("quarantined")
        writer.bool(token.isQuarantined)
        writer.endObject()
    }

    /// A message's trace so far, or that it is unknown (or belongs to an app outside `scope`).
    package static func trace(_ trace: MessageTrace?, scope: Set<AppKey>?, registry: AppRegistry) -> APIResponse {
        guard let trace, scope?.contains(trace.app) ?? true else {
            return AdminFault(.notFound, "no such message, or its trace is older than a day").response
        }
        var writer = JSONWriter(capacity: 512 + 96 * trace.steps.count)
        write(trace, registry, to: &writer)
        return APIResponse(status: 200, body: writer.bytes)
    }

    static func write(_ trace: MessageTrace, _ registry: AppRegistry, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("msgId")
        writer.string(trace.message.description)
        writer.key("taskId")
        writer.string(trace.task.text)
        writer.key("appId")
        writer.string(registry.appID(of: trace.app))
        writer.key("cid")
        writer.string(trace.cid.description)
        writer.key("strategy")
        writer.integer(Int64(trace.strategy.rawValue))
        writer.key("offline")
        writer.bool(trace.isOffline)
        writer.key("sequence")
        writer.integer(trace.sequence)
        writer.key("acceptedAt")
        writer.integer(trace.acceptedAt)
        writer.key("expiresAt")
        writer.integer(trace.expiresAt)
        writer.key("state")
        writer.string(trace.finalState?.name ?? "pending")
        if !trace.finalReason.isEmpty {
            writer.key("reason")
            writer.string(trace.finalReason)
        }
        if let fallback = trace.fallback {
            writer.key("fallback")
            writer.string(fallback.name)
            if fallback == .none {
                writer.key("fallbackReason")
                writer.string(trace.fallbackReason.name)
            }
        }
        if trace.attempts > 0 {
            writer.key("attempts")
            writer.integer(Int64(trace.attempts))
        }
        if let reason = trace.vendorReason, !reason.isEmpty {
            writer.key("vendorReason")
            writer.string(reason)
        }
        writer.key("steps")
        writer.beginArray()
        for step in trace.steps {
            writer.beginObject()
            writer.key("event")
            writer.string(step.event.name)
            writer.key("time")
            writer.integer(step.time)
            if step.event.isOfVendor, let channel = trace.channel {
                writer.key("channel")
                writer.string(channel.name)
            }
            if !step.detail.isEmpty {
                writer.key("detail")
                writer.string(step.detail)
            }
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
    }
}

extension ApplicationState {
    package var name: StaticString {
        switch self {
        case .foreground: "foreground"
        case .background: "background"
        case .terminated: "terminated"
        }
    }
}

extension FinalState {
    /// The name in traces, metrics and `Welcome.dropped`.
    package var name: StaticString {
        switch self {
        case .delivered: "delivered"
        case .deliveredOffline: "deliveredOffline"
        case .opened: "opened"
        case .handedOff: "handedOff"
        case .expired: "expired"
        case .collapsed: "collapsed"
        case .revoked: "revoked"
        case .overflowed: "overflowed"
        case .failed: "failed"
        }
    }
}

extension TraceEvent {
    /// A step of a message's way to the vendor, which belongs to a channel.
    var isOfVendor: Bool {
        switch self {
        case .jobDue, .leased, .leaseLapsed, .vendorAccepted, .vendorRetry, .vendorRejected, .badToken, .exhausted,
            .cancelled, .alertedTwice, .unsent:
            true
        case .accepted, .sent, .timedOut, .opened, .shown, .acked, .ended, .action: false
        }
    }

    /// The name in traces (docs/Errors.md, "Trace events").
    package var name: StaticString {
        switch self {
        case .accepted: "accepted"
        case .sent: "sent"
        case .timedOut: "timedOut"
        case .jobDue: "jobDue"
        case .leased: "leased"
        case .leaseLapsed: "leaseLapsed"
        case .vendorAccepted: "vendorAccepted"
        case .vendorRetry: "vendorRetry"
        case .vendorRejected: "vendorRejected"
        case .badToken: "badToken"
        case .exhausted: "exhausted"
        case .cancelled: "cancelled"
        case .alertedTwice: "alertedTwice"
        case .opened: "opened"
        case .shown: "shown"
        case .acked: "acked"
        case .ended: "ended"
        case .action: "action"
        case .unsent: "unsent"
        }
    }
}
