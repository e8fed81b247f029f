import FoundationEssentials

/// The seed in `LONGWIRE_SEED`, to replay one run.
enum ReplayedSeed {
    static var value: UInt64? { ProcessInfo.processInfo.environment["LONGWIRE_SEED"].flatMap { UInt64($0) } }
}
