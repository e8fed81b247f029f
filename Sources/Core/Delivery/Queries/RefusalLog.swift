// Publishes that were refused, for a while: a refused message has no row, so nothing else could tell a sender why.

package import Wire

/// A publish that made no message, and why.
package struct RefusedPublish: Sendable, Equatable, Codable {
    /// Raw values travel between gateways.
    package enum Reason: UInt8, Sendable, CaseIterable, Codable {
        case queueFull = 1, blacklisted, inactive, noToken, noContent, unknownDevice, requestConflict, stopped, tooLarge
    }

    package var time: GatewayTime
    package var reason: Reason
    package var app: AppKey
    package var cid: DeviceID
    package var task: TaskID
    /// The digest of its request; zeros when it had none of its own.
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
/// In memory only, and a bounded number: a restart forgets them, and a busy shard the oldest. A refusal that says nothing
/// of the device or the message (busy, unreadable) is not kept, so that a full store does not push out the others.
struct RefusalLog {
    /// 80 bytes each; the memory grows with the first ones only.
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

    /// Those that `isMeant`, newest first, a bounded number.
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
    /// As a refusal is kept; `nil` for what is no refusal, or one that says nothing of the message.
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
