package import Delivery
package import Wire

/// What one loop counts: plain memory of that loop, no locks and no atomics on a message's path.
///
/// The loop hands out a copy when it is asked for one; copying is a retain, and the loop's next count copies the
/// numbers once. Counters only grow; gauges are put into the copy by whoever makes it.
package struct LoopMetrics: Sendable, Equatable {
    private var counters: [UInt64]
    private var timers: [MetricHistogram]

    package init() {
        counters = Array(repeating: 0, count: LoopCounter.allCases.count)
        timers = Array(repeating: MetricHistogram(), count: LoopTimer.allCases.count)
    }

    package mutating func count(_ counter: LoopCounter, _ amount: Int = 1) {
        counters[counter.rawValue] &+= UInt64(truncatingIfNeeded: amount)
    }

    package mutating func observe(_ timer: LoopTimer, microseconds: Int64) {
        timers[timer.rawValue].observe(microseconds: microseconds)
    }

    package subscript(_ counter: LoopCounter) -> UInt64 { counters[counter.rawValue] }
    package subscript(_ timer: LoopTimer) -> MetricHistogram { timers[timer.rawValue] }
}

/// What a loop counts: each case is one sample of the page.
package enum LoopCounter: Int, Sendable, CaseIterable {
    case deviceAccepted, senderAccepted
    case deviceDisplaced, senderDisplaced, httpDisplaced, adminDisplaced
    case deviceTurnedAway, senderTurnedAway, httpTurnedAway, adminTurnedAway
    case bytesReceived, bytesSent, turns, mailboxRefusals, coldReads, storeBreaches

    case messagesAccepted, deliversSent, broadcastMessages, acksReceived, acksIgnored, feedbackIgnored, alertedTwice,
        jobsLeased
    case resultAccepted, resultRetry, resultRejected, resultBadToken, resultStale
    case endedDelivered, endedDeliveredOffline, endedOpened, endedHandedOff, endedExpired, endedCollapsed,
        endedRevoked, endedOverflowed, endedFailed
    case refusedUnknownDevice, refusedQueueFull, refusedNoToken, refusedConflict, refusedPending, refusedBusy,
        refusedStore, refusedIgnored, refusedStopped, refusedInvalid

    case closedByPeer, closedForHeartbeat, closedForHello, closedForSlowReader, closedForStop, closedForOverload,
        closedForClock, closedForProof, closedForReplacement, closedForProtocol, closedForStore, closedOtherwise

    case http2xx, http4xx, http5xx, admin2xx, admin4xx, admin5xx

    /// The metric, and the labels that tell this sample from its siblings.
    var sample: (metric: Metric, labels: KeyValuePairs<MetricLabel, String>) {
        switch self {
        case .deviceAccepted: (.connectionsAccepted, [.listener: "device"])
        case .senderAccepted: (.connectionsAccepted, [.listener: "senders"])
        case .deviceDisplaced: (.connectionsDisplaced, [.listener: "device"])
        case .senderDisplaced: (.connectionsDisplaced, [.listener: "senders"])
        case .httpDisplaced: (.connectionsDisplaced, [.listener: "http"])
        case .adminDisplaced: (.connectionsDisplaced, [.listener: "admin"])
        case .deviceTurnedAway: (.connectionsTurnedAway, [.listener: "device"])
        case .senderTurnedAway: (.connectionsTurnedAway, [.listener: "senders"])
        case .httpTurnedAway: (.connectionsTurnedAway, [.listener: "http"])
        case .adminTurnedAway: (.connectionsTurnedAway, [.listener: "admin"])
        case .bytesReceived: (.bytesReceived, [:])
        case .bytesSent: (.bytesSent, [:])
        case .turns: (.loopTurns, [:])
        case .mailboxRefusals: (.mailboxRefusals, [:])
        case .coldReads: (.coldReads, [:])
        case .storeBreaches: (.storeBreaches, [:])
        case .messagesAccepted: (.messagesAccepted, [:])
        case .deliversSent: (.deliversSent, [:])
        case .broadcastMessages: (.broadcastMessages, [:])
        case .acksReceived: (.acksReceived, [:])
        case .acksIgnored: (.acksIgnored, [:])
        case .feedbackIgnored: (.feedbackIgnored, [:])
        case .alertedTwice: (.alertedTwice, [:])
        case .jobsLeased: (.jobsLeased, [:])
        case .resultAccepted: (.jobResults, [.outcome: "accepted"])
        case .resultRetry: (.jobResults, [.outcome: "retry"])
        case .resultRejected: (.jobResults, [.outcome: "rejected"])
        case .resultBadToken: (.jobResults, [.outcome: "badToken"])
        case .resultStale: (.jobResults, [.outcome: "stale"])
        case .endedDelivered: (.messagesEnded, [.state: "delivered"])
        case .endedDeliveredOffline: (.messagesEnded, [.state: "deliveredOffline"])
        case .endedOpened: (.messagesEnded, [.state: "opened"])
        case .endedHandedOff: (.messagesEnded, [.state: "handedOff"])
        case .endedExpired: (.messagesEnded, [.state: "expired"])
        case .endedCollapsed: (.messagesEnded, [.state: "collapsed"])
        case .endedRevoked: (.messagesEnded, [.state: "revoked"])
        case .endedOverflowed: (.messagesEnded, [.state: "overflowed"])
        case .endedFailed: (.messagesEnded, [.state: "failed"])
        case .refusedUnknownDevice: (.publishesRefused, [.reason: "unknownDevice"])
        case .refusedQueueFull: (.publishesRefused, [.reason: "queueFull"])
        case .refusedNoToken: (.publishesRefused, [.reason: "noToken"])
        case .refusedConflict: (.publishesRefused, [.reason: "requestConflict"])
        case .refusedPending: (.publishesRefused, [.reason: "requestPending"])
        case .refusedBusy: (.publishesRefused, [.reason: "busy"])
        case .refusedStore: (.publishesRefused, [.reason: "storeFailed"])
        case .refusedIgnored: (.publishesRefused, [.reason: "ignored"])
        case .refusedStopped: (.publishesRefused, [.reason: "stopped"])
        case .refusedInvalid: (.publishesRefused, [.reason: "invalid"])
        case .closedByPeer: (.connectionsClosed, [.reason: "peer"])
        case .closedForHeartbeat: (.connectionsClosed, [.reason: "heartbeat"])
        case .closedForHello: (.connectionsClosed, [.reason: "helloTimeout"])
        case .closedForSlowReader: (.connectionsClosed, [.reason: "slowReader"])
        case .closedForStop: (.connectionsClosed, [.reason: "shuttingDown"])
        case .closedForOverload: (.connectionsClosed, [.reason: "overloaded"])
        case .closedForClock: (.connectionsClosed, [.reason: "clockSkew"])
        case .closedForProof: (.connectionsClosed, [.reason: "authentication"])
        case .closedForReplacement: (.connectionsClosed, [.reason: "replaced"])
        case .closedForProtocol: (.connectionsClosed, [.reason: "protocol"])
        case .closedForStore: (.connectionsClosed, [.reason: "store"])
        case .closedOtherwise: (.connectionsClosed, [.reason: "other"])
        case .http2xx: (.httpRequests, [.listener: "http", .status: "2xx"])
        case .http4xx: (.httpRequests, [.listener: "http", .status: "4xx"])
        case .http5xx: (.httpRequests, [.listener: "http", .status: "5xx"])
        case .admin2xx: (.httpRequests, [.listener: "admin", .status: "2xx"])
        case .admin4xx: (.httpRequests, [.listener: "admin", .status: "4xx"])
        case .admin5xx: (.httpRequests, [.listener: "admin", .status: "5xx"])
        }
    }

    /// The counter of connections that we closed with this code.
    package static func closed(_ code: CloseCode) -> LoopCounter {
        switch code {
        case .goodbye: .closedByPeer
        case .heartbeatTimeout, .suspectTimeout: .closedForHeartbeat
        case .helloTimeout: .closedForHello
        case .slowReader: .closedForSlowReader
        case .shuttingDown: .closedForStop
        case .overloaded: .closedForOverload
        case .clockSkew: .closedForClock
        case .badProof, .unknownDevice, .unknownApp, .plaintextRegistration: .closedForProof
        case .replaced: .closedForReplacement
        case .wrongListener, .unexpectedFrame, .frameTooLarge, .malformed, .badAck, .floods: .closedForProtocol
        case .storeUnavailable: .closedForStore
        case .moved, .internalError: .closedOtherwise
        }
    }

    package static func ended(_ state: FinalState) -> LoopCounter {
        switch state {
        case .delivered: .endedDelivered
        case .deliveredOffline: .endedDeliveredOffline
        case .opened: .endedOpened
        case .handedOff: .endedHandedOff
        case .expired: .endedExpired
        case .collapsed: .endedCollapsed
        case .revoked: .endedRevoked
        case .overflowed: .endedOverflowed
        case .failed: .endedFailed
        }
    }

    /// The counter of a publish that ended so; `accepted` counts as accepted.
    package static func published(_ code: PublishOutcome.Code) -> LoopCounter {
        switch code {
        case .accepted: .messagesAccepted
        case .unknownDevice: .refusedUnknownDevice
        case .queueFull: .refusedQueueFull
        case .noToken: .refusedNoToken
        case .requestConflict: .refusedConflict
        case .requestPending: .refusedPending
        case .busy: .refusedBusy
        case .storeFailed: .refusedStore
        case .ignored: .refusedIgnored
        case .stopped: .refusedStopped
        case .tooLarge: .refusedInvalid
        }
    }
}

/// What a loop times.
package enum LoopTimer: Int, Sendable, CaseIterable {
    case request

    var metric: Metric {
        switch self {
        case .request: .httpRequestSeconds
        }
    }
}
