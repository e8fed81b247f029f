// The strategies of a message, and every decision that depends on one: a table of pure functions over small values.
//
// Each function asks one question and switches over all strategies, without a default. So a new strategy is a new case
// here, a number in the parsers (`PushSettings`, `NativePublish`) and a row in docs/Semantics.md, "Strategies and final
// states", and the compiler names each question that has no answer for it yet. No other file names a strategy
// (Tests/Checks/check-strategies.sh).

/// How a message may travel (docs/Semantics.md, "Strategies and final states").
package enum Strategy: UInt8, Sendable, CaseIterable, Codable {
    case liveElseVendor = 1, vendorOnly, liveOnly, vendorElseLive

    /// The strategy of a publish that names none.
    package static let standard = Strategy.liveElseVendor
    /// A vendor cannot withdraw what it has shown.
    package static let ofRevoke = Strategy.liveOnly
}

// MARK: What the answer says

extension Strategy {
    package typealias Fallback = PublishOutcome.Fallback
    package typealias FallbackReason = PublishOutcome.FallbackReason

    /// Why no handoff job follows or carries a message; `.applies`: one does.
    package func fallbackReason(timeToLive: Int64, hasContent: Bool, hasToken: Bool) -> FallbackReason {
        switch self {
        case .liveOnly: return .strategy
        // One live attempt, whatever comes of it.
        case .liveElseVendor: if timeToLive == 0 { return .timeToLive }
        // Its one attempt is the vendor's.
        case .vendorOnly, .vendorElseLive: break
        }
        return !hasContent ? .noContent : hasToken ? .applies : .noToken
    }

    /// Whether what the vendor's content leaves out would never reach a device: only the vendor may carry the message.
    package func losesWhatVendorLeavesOut(timeToLive: Int64) -> Bool {
        switch self {
        case .vendorOnly: true
        // A one-shot message never moves to the live stream.
        case .vendorElseLive: timeToLive <= 0
        // A reachable device gets it live, and one that returns finds it in its queue, unless the publisher asked for no storage.
        case .liveElseVendor, .liveOnly: false
        }
    }

    /// The same for a task whose devices are not known yet; `.applies`: each device decides.
    package func fallbackReason(ofTaskWith timeToLive: Int64, hasContent: Bool) -> FallbackReason {
        switch self {
        case .liveOnly: return .strategy
        case .liveElseVendor, .vendorOnly, .vendorElseLive:
            guard hasContent else { return .noContent }
            return fallbackReason(timeToLive: timeToLive, hasContent: true, hasToken: true)
        }
    }

    /// What the answer to a publish said of the vendor's part, from what the message's row tells of it.
    package func answered(
        isArmed: Bool, wasReachable: Bool, table: StoreKey.Table, timeToLive: Int64, hasContent: Bool
    ) -> (state: Fallback, reason: FallbackReason) {
        switch self {
        case .liveElseVendor, .liveOnly:
            if isArmed { return (wasReachable ? .armed : .due, .applies) }
        case .vendorOnly, .vendorElseLive:
            // One that the vendor failed and that moved to the live stream had a job, too.
            if isArmed || table == .message { return (.due, .applies) }
        }
        return (.none, fallbackReason(timeToLive: timeToLive, hasContent: hasContent, hasToken: false))
    }
}

// MARK: Acceptance

/// What decides how the shard accepts a message for a device.
package struct Submission {
    package var now: GatewayTime
    /// Milliseconds from acceptance; 0: one live attempt; −1: no offline storage.
    package var timeToLive: Int64
    /// It has something for the vendor to show.
    package var hasContent: Bool
    /// The device has a usable token of the content's kind.
    package var hasToken: Bool
    package var isReachable: Bool
    package var isPushModeOff: Bool
    /// It is one of several: a device that it cannot reach has a final state in place of a refusal.
    package var isBulk: Bool
    /// How long the device may take for its ack.
    package var liveDeadline: Int64
    /// How long senders may lease the job of a message that is not stored for its device.
    package var leasable: Int64

    package init(
        now: GatewayTime, timeToLive: Int64, hasContent: Bool, hasToken: Bool, isReachable: Bool, isPushModeOff: Bool,
        isBulk: Bool, liveDeadline: Int64, leasable: Int64
    ) {
        (self.now, self.timeToLive, self.hasContent, self.hasToken) = (now, timeToLive, hasContent, hasToken)
        (self.isReachable, self.isPushModeOff, self.isBulk) = (isReachable, isPushModeOff, isBulk)
        (self.liveDeadline, self.leasable) = (liveDeadline, leasable)
    }
}

/// How the shard accepts a message: its table and times, its job, and what the answer says.
package struct Acceptance {
    /// `.vendorMessage` without a place in the live stream.
    package var table = StoreKey.Table.message
    package var expiresAt: GatewayTime = 0
    /// The end of the live attempt; 0: there is none.
    package var fallbackAt: GatewayTime = 0
    /// The gateway sends it at once.
    package var isLive = false
    /// Its job is due at `fallbackAt`, or at once without one.
    package var isArmed = false
    package var fallback = PublishOutcome.Fallback.none
    package var reason = PublishOutcome.FallbackReason.applies
    /// The state of a message that ends in the batch that accepts it.
    package var endsAs: FinalState?
    package var endReason = ""
}

extension Strategy {
    /// How the shard accepts a message; see docs/Semantics.md, "Time to live and clocks", too.
    ///
    /// - Returns: `nil` when the shard refuses it for want of vendor content or a token.
    package func accept(_ submission: Submission) -> Acceptance? {
        var plan: Acceptance
        switch self {
        case .liveElseVendor, .liveOnly: plan = acceptLive(submission)
        case .vendorOnly, .vendorElseLive:
            plan = acceptForVendor(submission)
            if plan.endsAs != nil, !submission.isBulk { return nil }
        }
        if plan.fallback != .none, submission.isPushModeOff { (plan.fallback, plan.reason) = (.none, .pushModeOff) }
        return plan
    }

    /// The live channel comes first.
    private func acceptLive(_ submission: Submission) -> Acceptance {
        let now = submission.now
        var plan = Acceptance()
        plan.isLive = submission.isReachable
        plan.reason = fallbackReason(
            timeToLive: submission.timeToLive, hasContent: submission.hasContent, hasToken: submission.hasToken)
        plan.isArmed = plan.reason == .applies
        if plan.isArmed { plan.fallback = submission.isReachable ? .armed : .due }
        let attemptEnds = now &+ submission.liveDeadline
        if submission.timeToLive > 0 {
            plan.expiresAt = now &+ submission.timeToLive
            if submission.isReachable {
                plan.fallbackAt =
                    plan.isArmed ? max(now, min(attemptEnds, plan.expiresAt &- Shard.lastFallback)) : attemptEnds
            }
        } else if submission.isReachable {
            plan.fallbackAt = attemptEnds
            plan.expiresAt = plan.isArmed ? attemptEnds &+ submission.leasable : attemptEnds
        } else if plan.isArmed {
            // Not stored for the device: only the vendor can carry it.
            plan.table = .vendorMessage
            plan.expiresAt = now &+ submission.leasable
        } else {
            plan.expiresAt = now
            plan.endsAs = .expired
        }
        return plan
    }

    /// The vendor comes first: a job, due at once.
    private func acceptForVendor(_ submission: Submission) -> Acceptance {
        var plan = Acceptance()
        plan.table = .vendorMessage
        plan.expiresAt =
            submission.now &+ (submission.timeToLive > 0 ? submission.timeToLive : submission.leasable)
        plan.reason = fallbackReason(
            timeToLive: submission.timeToLive, hasContent: submission.hasContent, hasToken: submission.hasToken)
        plan.isArmed = plan.reason == .applies
        if plan.isArmed {
            plan.fallback = .due
        } else {
            (plan.endsAs, plan.endReason) = (.failed, "noToken")
        }
        return plan
    }
}

// MARK: What the vendor says

/// A message with a job, when the vendor's part of it is over.
package struct VendorPart {
    /// The message has a place in a stream, from its acceptance or since the vendor failed it.
    package var isStreamed: Bool
    /// TTL 0 or −1.
    package var isOneShot: Bool
    /// Its time is over.
    package var isOver: Bool
    /// A vendor accepted it before.
    package var wasAlerted: Bool
    /// See `PublishCommand.vendorCarriesAll`.
    package var carriesAll: Bool

    package init(isStreamed: Bool, isOneShot: Bool, isOver: Bool, wasAlerted: Bool, carriesAll: Bool) {
        (self.isStreamed, self.isOneShot, self.isOver, self.wasAlerted) = (isStreamed, isOneShot, isOver, wasAlerted)
        self.carriesAll = carriesAll
    }

    init(_ row: JobRow, now: GatewayTime) {
        isStreamed = row.facts.table != .vendorMessage
        isOneShot = row.facts.isOneShot
        isOver = row.facts.expiresAt <= now
        wasAlerted = row.alertedAt > 0
        carriesAll = row.facts.vendorCarriesAll
    }
}

/// What becomes of a message when the vendor's part of it is over.
package enum VendorVerdict: Equatable {
    case ends(FinalState)
    /// It gets a place in the live stream, with the offline flag.
    case goesLive
    /// It stays where it is, until its ack or the end of its time.
    case stays
}

extension Strategy {
    /// A vendor accepted the message.
    package func vendorAccepted(_ part: VendorPart) -> VendorVerdict {
        if part.isOver { return .ends(.handedOff) }
        switch self {
        // The device gets it when it returns.
        case .liveElseVendor, .liveOnly: return .stays
        case .vendorOnly: return .ends(.handedOff)
        case .vendorElseLive:
            // The vendor may accept it under a lapsed lease, after the move to the live stream.
            if part.isStreamed { return .stays }
            // The rest is delivered when the device reconnects.
            return part.carriesAll || part.isOneShot ? .ends(.handedOff) : .goesLive
        }
    }

    /// The vendor refused the message, all attempts failed, or no sender leased its job in time.
    package func vendorFailed(_ part: VendorPart) -> VendorVerdict {
        if part.isOver { return .ends(.atExpiry(wasAlerted: part.wasAlerted)) }
        switch self {
        case .liveElseVendor, .liveOnly: return .stays
        case .vendorOnly: return .ends(.failed)
        case .vendorElseLive: return part.isStreamed ? .stays : part.isOneShot ? .ends(.failed) : .goesLive
        }
    }

    /// Whether the vendor has failed when no sender leases the job in time (`vendorFirstPatience`).
    package func mustBeLeasedInTime(in table: StoreKey.Table) -> Bool {
        switch self {
        // A job that no sender leases ends with its message's time.
        case .liveElseVendor, .vendorOnly, .liveOnly: false
        case .vendorElseLive: table == .vendorMessage
        }
    }

    /// Whether a due job waits while its device can get the message live.
    package func holdsJob(in table: StoreKey.Table) -> Bool {
        switch self {
        case .liveElseVendor: table != .vendorMessage
        // Their jobs go first, or there are none.
        case .vendorOnly, .liveOnly, .vendorElseLive: false
        }
    }

    /// The group for a due job that its app has no room for.
    package func group(in table: StoreKey.Table) -> AlarmGroup.Kind {
        mustBeLeasedInTime(in: table) ? .vendorTimeout : .due
    }
}

extension FinalState {
    /// The state of a message whose time is over.
    package static func atExpiry(wasAlerted: Bool) -> FinalState { wasAlerted ? .handedOff : .expired }
}

// MARK: Feedback

extension Strategy {
    /// Whether a message that its user opened ends as `opened`; otherwise the open is a step of its trace.
    ///
    /// It does only if the alert carried all of it. Otherwise the rest would be lost.
    package func endsWhenOpened(carriesAll: Bool) -> Bool {
        switch self {
        case .liveElseVendor: carriesAll
        case .vendorOnly, .liveOnly, .vendorElseLive: false
        }
    }
}

// MARK: Broadcasts

extension Strategy {
    /// Whether a broadcast travels in stream 1; otherwise a scan fans it out as messages of single devices.
    package var isStreamed: Bool {
        switch self {
        case .liveElseVendor, .liveOnly: true
        // They begin with the vendor, whose jobs are each device's own.
        case .vendorOnly, .vendorElseLive: false
        }
    }

    /// The strategy of a streamed broadcast whose message has only its ledger row.
    static func ofBroadcast(withReason reason: FallbackReason) -> Strategy {
        switch reason {
        case .strategy: .liveOnly
        case .applies, .noToken, .noContent, .timeToLive, .pushModeOff: .liveElseVendor
        }
    }
}

// MARK: A planted fault

extension Strategy {
    /// The strategy under which the shard accepts a message when a test planted `liveOnlyReachesVendor`.
    var reachingVendor: Strategy {
        switch self {
        case .liveElseVendor, .liveOnly: .liveElseVendor
        case .vendorOnly: .vendorOnly
        case .vendorElseLive: .vendorElseLive
        }
    }
}
