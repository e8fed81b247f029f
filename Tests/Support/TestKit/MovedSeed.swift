/// The seed of a planted fault, found by a search because the known seed no longer detects the fault.
package enum MovedSeed {
    /// The number of tries above which a search fails its test; otherwise each run repeats a long search unnoticed.
    private static let mostTries = 8

    /// Prints the seed to note as the known one.
    ///
    /// - Returns: The text of a failure if the search took more than eight tries.
    package static func report(_ fault: String, _ seed: String, tries: Int) -> String? {
        guard tries > 0 else { return nil }
        let text = "\(fault) shows with \(seed) now, try \(tries): note it in `known`"
        print(text)
        return tries > mostTries ? text : nil
    }
}
