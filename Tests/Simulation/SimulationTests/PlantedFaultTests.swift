import Delivery
import FoundationEssentials
import Simulation
import Testing
import TextForms

#if DEBUG
/// A check that has never failed proves nothing: each deliberate bug must be seen within the fixed seeds.
@Suite("Every planted fault is caught") struct PlantedFaultTests {
    /// Shorter runs than those of the fixed seeds: most faults show early in some seed.
    private static let eventCount = 9_000
    /// Beyond the fixed seeds, for faults that need rare weather.
    private static let seeds: ClosedRange<UInt64> = 1...192

    /// What may give a fault away: the rule it breaks, or one that falls with it.
    private static func kinds(_ fault: PlantedFault) -> Set<ViolationKind> {
        switch fault {
        case .ackKeepsJob, .expiryUncounted: [.books]
        case .ackOfUnsentCounts: [.finalState]
        case .ackAboveHighestAccepted: [.sequence]
        case .positionsIgnored, .recalledNotResent: [.order]
        case .generationIgnored: [.fencing, .offlineFlag, .badge]
        case .timestampIgnored, .gateIgnored: [.fencing, .strategy]
        case .windowMiscounted, .collapseKeepsOlder, .overflowDropsInFlight: [.bounds]
        case .offlineFlagOnce, .suspectCountsAsReachable: [.offlineFlag]
        case .sequenceReused: [.sequence]
        case .answerBeforeSync, .deliverBeforeSync: [.beforeSync]
        case .overtakenLeaseShown: [.leasedAfterEnd, .leasedAfterExpiry]
        case .requestForgotten: [.request]
        case .reasonUncut: [.storeContract]
        case .expiryOffByOne: [.leasedAfterExpiry, .sentAfterExpiry]
        case .alarmLost: [.progress]
        case .lapsedLeaseLost, .impliedJobLost: [.progress]
        case .successorIgnored: [.lease, .badge, .storeContract]
        case .liveOnlyReachesVendor, .vendorFirstNeverLive, .jobsNotHeld: [.strategy]
        case .lateResultCounts, .currentTokenQuarantined: [.lease]
        case .badgePerLease: [.badge]
        case .receiptCountsTwice: [.books]
        case .taskReachesTwice: [.request, .finalState]
        case .revokeLeavesPending: [.finalState]
        case .broadcastIgnoresTags: [.content]
        case .broadcastBeforeSync: [.beforeSync]
        // It writes as new a row that is there.
        case .broadcastLedgerIgnored: [.finalState, .order, .request, .handledTwice, .progress, .storeContract]
        case .broadcastGoesOnAfterStop: [.finalState, .sentAfterEnd]
        case .enumeratorAlertsAll: [.finalState, .request]
        case .dealtToNewcomers: [.content]
        case .dealtPastUnread: [.progress]
        case .siblingStays, .siblingLetIn: [.finalState]
        }
    }

    @Test("by one of the fixed seeds, which is clean without it")
    func caught() throws {
        var lines: [String] = []
        var clean: Set<UInt64> = []
        for fault in PlantedFault.allCases {
            guard let (seed, hasServer, violation) = Self.search(fault) else {
                Issue.record("no seed of \(Self.seeds) catches \(fault)")
                continue
            }
            #expect(Self.kinds(fault).contains(violation.kind), "\(fault) shows as \(violation)")
            let name =
                seed + (hasServer ? 1_000 : 0) + (fault.isOfBroadcasts ? 2_000 : 0) + (fault.isOfReceipts ? 4_000 : 0)
            if clean.insert(name).inserted {
                let world = World(
                    seed: seed, hasServer: hasServer, hasBroadcasts: fault.isOfBroadcasts,
                    hasReceipts: fault.isOfReceipts)
                world.run(events: Self.eventCount)
                #expect(world.violation == nil, "seed \(seed) fails without a fault, too")
            }
            let text = JSONString.quoted("\(violation.kind.rawValue): \(violation.text)")
            lines.append(#"{"fault": "\#(fault.rawValue)", "seed": \#(seed), "violation": \#(text)}"#)
        }
        if let path = ProcessInfo.processInfo.environment["LONGWIRE_PLANTED_REPORT"] {
            let json = "[\n" + lines.joined(separator: ",\n") + "\n]\n"
            try Data(json.utf8).write(to: URL(filePath: path))
        }
    }

    /// Most faults have nothing to do with an app's server, and show sooner without one.
    private static func search(_ fault: PlantedFault) -> (UInt64, hasServer: Bool, Violation)? {
        for hasServer in fault.isOfBroadcasts ? [true] : [false, true] {
            for seed in seeds {
                let world = World(
                    seed: seed, hasServer: hasServer, hasBroadcasts: fault.isOfBroadcasts,
                    hasReceipts: fault.isOfReceipts
                ) { $0.planted = fault }
                world.run(events: eventCount)
                if let violation = world.violation { return (seed, hasServer, violation) }
            }
        }
        return nil
    }
}

extension PlantedFault {
    /// The others have nothing to do with broadcasts and first acks, and show sooner without them.
    fileprivate var isOfBroadcasts: Bool {
        switch self {
        case .broadcastIgnoresTags, .broadcastBeforeSync, .broadcastLedgerIgnored, .broadcastGoesOnAfterStop,
            .enumeratorAlertsAll, .dealtToNewcomers, .dealtPastUnread, .siblingStays, .siblingLetIn:
            true
        default: false
        }
    }

    fileprivate var isOfReceipts: Bool { self == .receiptCountsTwice }
}
#endif
