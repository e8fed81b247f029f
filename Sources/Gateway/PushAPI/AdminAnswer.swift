package import Delivery
internal import JSON
package import Wire

package enum AdminAnswer {
    /// Returns the token of a one-time link, or the refusal of its code.
    package static func signIn(token: String?) -> APIResponse {
        guard let token else {
            return AdminFault(
                .unauthorized,
                "the link was used, has expired, or is of an earlier start; restart the gateway for another"
            ).response
        }
        return .object(["token": token])
    }

    package static func device(_ status: DeviceStatus?, at address: DeviceAddress, registry: AppRegistry) -> APIResponse
    {
        guard let status, status.app == address.app else {
            return AdminFault(.notFound, "no such device in this app").response
        }
        let queue: JSONObject = [
            "messages": status.queuedMessageCount, "bytes": status.queuedByteCount, "inFlight": status.inFlightCount,
            "nextSequence": status.nextSequence, "messageLimit": status.bounds.messageCount,
            "byteLimit": status.bounds.byteCount,
        ]
        let session: JSONObject = [
            "appId": registry.appID(of: status.app), "cid": address.cid.description, "bucket": address.bucket.index,
            "connected": status.isConnected, "reachable": status.isReachable, "suspect": status.isSuspect,
            "state": status.applicationState.name, "keepsRunning": status.keepsRunning,
            "generation": status.generation, "heartbeatSeconds": status.heartbeatSeconds,
            "lastSeenAt": status.lastSeenAt, "registeredAt": status.registeredAt, "queue": queue,
        ]
        let settings: JSONObject = [
            "badge": status.badge, "pushModeOff": status.pushModeOff, "blacklisted": status.isBlacklisted,
            "inactive": status.isInactive, "slowedUntil": status.slowedUntil, "aliases": status.names.aliases,
            "tags": status.names.tags, "tokens": status.tokens.map(members),
        ]
        let refused = status.refusedHello.map { refused -> JSONObject in
            ["time": refused.time, "code": refused.code, "reason": refused.reason]
        }
        let isDisabled = registry.known(status.app)?.isEnabled == false
        return .object(
            session + settings
                + [
                    "attributes": status.attributes.map(DeviceAttributesAnswer.members), "appDisabled": isDisabled,
                    "refusedHello": refused,
                ]
                + fallback(status, isDisabled: isDisabled))
    }

    /// Returns whether a vendor could deliver an alert to the device now, and the vendor's last failure.
    private static func fallback(_ status: DeviceStatus, isDisabled: Bool) -> JSONObject {
        let suitable = status.tokens.filter {
            $0.kind == .alert && ($0.channel != .apns || status.appHasTopic || !$0.topic.isEmpty)
        }
        let reason: StaticString? =
            if isDisabled {
                "appDisabled"
            } else if status.isBlacklisted {
                "blacklisted"
            } else if status.isInactive {
                "inactive"
            } else if status.pushModeOff {
                PublishOutcome.FallbackReason.pushModeOff.name
            } else if suitable.contains(where: { !$0.isQuarantined }) {
                nil
            } else if !suitable.isEmpty {
                "tokenQuarantined"
            } else {
                status.hasLostToken ? "tokenMoved" : PublishOutcome.FallbackReason.noToken.name
            }
        let failure = status.vendorFailure.map { failure -> JSONObject in
            [
                "msgId": failure.message.description, "time": failure.at, "outcome": failure.outcome.name,
                "attempts": failure.attempts, "reason": failure.reason.unlessEmpty,
            ]
        }
        return [
            "fallback": reason == nil ? "available" : "none", "fallbackReason": reason, "vendorFailure": failure,
        ]
    }

    /// Returns a token's members; its first eight characters identify the secret token but cannot be used to send.
    private static func members(_ token: DeviceStatus.Token) -> JSONObject {
        [
            "channel": token.channel.name, "kind": token.kind.name, "environment": token.environment.name,
            "topic": token.topic, "token": String(token.token.prefix(8)) + "…",
            "activity": token.activity.unlessEmpty, "quarantined": token.isQuarantined,
        ]
    }

    /// Returns a message's trace; not found if it is unknown or its app is outside `scope`.
    package static func trace(_ trace: MessageTrace?, scope: Set<AppKey>?, registry: AppRegistry) -> APIResponse {
        guard let trace, scope?.contains(trace.app) ?? true else {
            return AdminFault(.notFound, "no such message, or its trace is older than a day").response
        }
        return .object(members(trace, registry))
    }

    static func members(_ trace: MessageTrace, _ registry: AppRegistry) -> JSONObject {
        let message: JSONObject = [
            "msgId": trace.message.description, "taskId": trace.task.text, "appId": registry.appID(of: trace.app),
            "cid": trace.cid.description, "strategy": trace.strategy.rawValue, "offline": trace.isOffline,
            "sequence": trace.sequence, "acceptedAt": trace.acceptedAt, "expiresAt": trace.expiresAt,
        ]
        let steps = trace.stepsByTime.map { step -> JSONObject in
            [
                "event": step.event.name, "time": step.time,
                "channel": step.event.isOfVendor ? trace.channel?.name : nil, "detail": step.detail.unlessEmpty,
            ]
        }
        return message + [
            "state": trace.finalState?.name ?? "pending", "reason": trace.finalReason.unlessEmpty,
            "fallback": trace.fallback.name,
            "fallbackReason": trace.fallback == .none ? trace.fallbackReason.name : nil,
            "alert": trace.alert.rawValue, "attempts": trace.attempts.unlessZero,
            "vendorReason": trace.vendorReason?.unlessEmpty, "customCallback": trace.customCallback.unlessEmpty,
            "steps": steps,
        ]
    }
}

extension MessageTrace {
    /// The steps in time order; steps of one millisecond keep their stored order.
    var stepsByTime: [Step] {
        steps.enumerated().sorted { ($0.element.time, $0.offset) < ($1.element.time, $1.offset) }.map(\.element)
    }

    /// The current state of a message's alert at the vendor, from its last step there.
    enum Alert: String {
        /// The message has no alert; `fallbackReason` gives the reason.
        case none
        /// The alert follows if the live attempt fails.
        case armed
        /// A sender service may lease the job.
        case due
        case leased
        case accepted
        /// The vendor refused the alert finally.
        case refused
        /// The message ended before its alert was sent.
        case unneeded
    }

    var alert: Alert {
        guard let last = stepsByTime.last(where: { $0.event.isOfVendor }) else {
            if fallback == .none { return .none }
            if finalState != nil { return .unneeded }
            return fallback == .due ? .due : .armed
        }
        switch last.event {
        case .vendorAccepted, .alertedTwice: return .accepted
        case .vendorRejected, .badToken, .exhausted: return .refused
        case .leased where finalState == nil: return .leased
        case .jobDue, .leaseLapsed, .vendorRetry, .unsent, .followedUp: return finalState == nil ? .due : .unneeded
        default: return .unneeded
        }
    }
}

extension ApplicationState {
    package var name: String { "\(self)" }
}

extension FinalState {
    /// The name in traces, metrics and `Welcome.dropped`.
    package var name: String { "\(self)" }
}

extension TraceEvent {
    var isOfVendor: Bool {
        switch self {
        case .jobDue, .leased, .leaseLapsed, .vendorAccepted, .vendorRetry, .vendorRejected, .badToken, .exhausted,
            .cancelled, .alertedTwice, .unsent, .followedUp:
            true
        case .accepted, .sent, .timedOut, .opened, .shown, .acked, .ended, .action: false
        }
    }

    /// The name in traces (docs/use/Errors.md, "Trace events").
    package var name: String { "\(self)" }
}
