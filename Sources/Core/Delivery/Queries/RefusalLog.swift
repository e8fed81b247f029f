package import Wire

package struct RefusedPublish: Sendable, Equatable, Codable {
    /// Raw values are sent between gateways.
    package enum Reason: UInt8, Sendable, CaseIterable, Codable {
        case queueFull = 1, blacklisted, inactive, noToken, noContent, unknownDevice, requestConflict, stopped, tooLarge
    }

    package var time: GatewayTime
    package var reason: Reason
    package var app: AppKey
    package var cid: DeviceID
    package var task: TaskID
    /// The digest of the request; zeros without a request id.
    package var request: CallKey

    package init(
        time: GatewayTime, reason: Reason, app: AppKey, cid: DeviceID, task: TaskID, request: CallKey
    ) {
        (self.time, self.reason, self.app) = (time, reason, app)
        (self.cid, self.task, self.request) = (cid, task, request)
    }
}

/// The last refusals of a shard.
///
/// A refused message has no row, so only this log shows the reason.
///
/// The log is bounded and in memory only. It omits refusals that do not depend on the device or the message (busy, unreadable),
/// because a full store would fill the log with them.
struct RefusalLog {
    /// The number of kept refusals; each takes 80 bytes.
    static let limit = 1_024

    private var entries: [RefusedPublish] = []
    private var next = 0

    mutating func note(_ refusal: RefusedPublish) {
        if entries.count < Self.limit {
            entries.append(refusal)
        } else {
            entries[next] = refusal
            next = (next + 1) % Self.limit
        }
    }

    func find(limit: Int, where isMeant: (RefusedPublish) -> Bool) -> [RefusedPublish] {
        var found: [RefusedPublish] = []
        for index in 0..<entries.count where found.count < limit {
            let refusal = entries[(next + entries.count - 1 - index) % entries.count]
            if isMeant(refusal) { found.append(refusal) }
        }
        return found
    }
}

extension PublishOutcome.Code {
    /// Returns the refusal's reason; `nil` if the outcome is no refusal, or does not depend on the message.
    func kept(_ reason: PublishOutcome.FallbackReason) -> RefusedPublish.Reason? {
        switch self {
        case .accepted, .busy, .storeFailed, .requestPending, .ignored: nil
        case .unknownDevice: .unknownDevice
        case .queueFull: .queueFull
        case .noToken: reason == .noContent ? .noContent : .noToken
        case .requestConflict: .requestConflict
        case .stopped: .stopped
        case .tooLarge: .tooLarge
        }
    }
}
