import FoundationEssentials

/// LONGWIRE_SEED replays one seed.
enum ReplayedSeed {
    static var value: UInt64? { ProcessInfo.processInfo.environment["LONGWIRE_SEED"].flatMap { UInt64($0) } }
}
