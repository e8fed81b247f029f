// The admin listener's answers about devices and messages.

package import Delivery
internal import JSON
package import Wire

package enum AdminAnswer {
    /// A device, or that there is none.
    package static func device(_ status: DeviceStatus?, at address: DeviceAddress, registry: AppRegistry) -> APIResponse
    {
        guard let status, status.app == address.app else {
            return AdminFault(.notFound, "no such device in this app").response
        }
        return .object(capacity: 1_024) { writer in
            writer.member("appId", registry.appID(of: status.app))
            writer.member("cid", address.cid.description)
            writer.member("bucket", address.bucket.index)
            writer.member("connected", status.isConnected)
            writer.member("reachable", status.isReachable)
            writer.member("suspect", status.isSuspect)
            writer.member("state", status.applicationState.name)
            writer.member("keepsRunning", status.keepsRunning)
            writer.member("generation", status.generation)
            writer.member("heartbeatSeconds", status.heartbeatSeconds)
            writer.member("lastSeenAt", status.lastSeenAt)
            writer.member("registeredAt", status.registeredAt)
            writer.object("queue") { writer in
                writer.member("messages", status.queuedMessageCount)
                writer.member("bytes", status.queuedByteCount)
                writer.member("inFlight", status.inFlightCount)
                writer.member("nextSequence", status.nextSequence)
                writer.member("messageLimit", status.bounds.messageCount)
                writer.member("byteLimit", status.bounds.byteCount)
            }
            writer.member("badge", status.badge)
            writer.member("pushModeOff", status.pushModeOff)
            writer.member("blacklisted", status.isBlacklisted)
            writer.member("inactive", status.isInactive)
            if let slowedUntil = status.slowedUntil { writer.member("slowedUntil", slowedUntil) }
            write(status.names.aliases, as: "aliases", to: &writer)
            write(status.names.tags, as: "tags", to: &writer)
            writer.array("tokens") { writer in
                for token in status.tokens { write(token, to: &writer) }
            }
            writeFallback(status, to: &writer)
        }
    }

    private static func write(_ texts: [String], as name: StaticString, to writer: inout JSONWriter) {
        writer.strings(name, texts)
    }

    /// Whether an alert could reach the device through APNs now, and what came of the last one.
    private static func writeFallback(_ status: DeviceStatus, to writer: inout JSONWriter) {
        let hasToken = status.tokens.contains {
            $0.kind == .alert && !$0.isQuarantined && (status.appHasTopic || !$0.topic.isEmpty)
        }
        let reason: StaticString? =
            if status.isBlacklisted {
                "blacklisted"
            } else if status.isInactive {
                "inactive"
            } else if status.pushModeOff {
                PublishOutcome.FallbackReason.pushModeOff.name
            } else if hasToken {
                nil
            } else {
                status.hasLostToken ? "tokenMoved" : PublishOutcome.FallbackReason.noToken.name
            }
        writer.member("fallback", reason == nil ? "available" : "none")
        if let reason { writer.member("fallbackReason", reason) }
        guard let failure = status.vendorFailure else { return }
        writer.object("vendorFailure") { writer in
            writer.member("msgId", failure.message.description)
            writer.member("time", failure.at)
            writer.member("outcome", failure.outcome.name)
            writer.member("attempts", failure.attempts)
            if !failure.reason.isEmpty { writer.member("reason", failure.reason) }
        }
    }

    /// A token is a secret of the device: eight characters tell tokens apart and send nothing.
    private static func write(_ token: DeviceStatus.Token, to writer: inout JSONWriter) {
        writer.object { writer in
            writer.member("channel", token.channel.name)
            writer.member("kind", token.kind.name)
            writer.member("environment", token.environment.name)
            writer.member("topic", token.topic)
            writer.member("token", String(token.token.prefix(8)) + "…")
            if !token.activity.isEmpty { writer.member("activity", token.activity) }
            writer.member("quarantined", token.isQuarantined)
        }
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
        writer.object { writer in
            writer.member("msgId", trace.message.description)
            writer.member("taskId", trace.task.text)
            writer.member("appId", registry.appID(of: trace.app))
            writer.member("cid", trace.cid.description)
            writer.member("strategy", trace.strategy.rawValue)
            writer.member("offline", trace.isOffline)
            writer.member("sequence", trace.sequence)
            writer.member("acceptedAt", trace.acceptedAt)
            writer.member("expiresAt", trace.expiresAt)
            writer.member("state", trace.finalState?.name ?? "pending")
            if !trace.finalReason.isEmpty { writer.member("reason", trace.finalReason) }
            writer.member("fallback", trace.fallback.name)
            if trace.fallback == .none { writer.member("fallbackReason", trace.fallbackReason.name) }
            if trace.attempts > 0 { writer.member("attempts", trace.attempts) }
            if let reason = trace.vendorReason, !reason.isEmpty { writer.member("vendorReason", reason) }
            writer.objects("steps", trace.steps) { writer, step in
                writer.member("event", step.event.name)
                writer.member("time", step.time)
                if step.event.isOfVendor, let channel = trace.channel {
                    writer.member("channel", channel.name)
                }
                if !step.detail.isEmpty { writer.member("detail", step.detail) }
            }
        }
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
