/// A set of jobs, with one bit for each publisher and number.
struct JobSet: Sendable, Equatable {
    private var words: [Int: [UInt64]] = [:]
    private(set) var count = 0

    /// - Returns: false when the job is already in the set.
    @inline(__always)
    mutating func insert(publisher: Int, number: UInt64) -> Bool {
        let index = Int(number >> 6)
        let bit = UInt64(1) << (number & 63)
        let isNew = words[publisher, default: []].withBit(at: index) { word in
            defer { word |= bit }
            return word & bit == 0
        }
        if isNew { count += 1 }
        return isNew
    }

    /// Adds another set.
    ///
    /// - Returns: the number of jobs in both sets.
    mutating func merge(_ other: JobSet) -> Int {
        var common = 0
        for (publisher, theirs) in other.words {
            var ours = words[publisher] ?? []
            if ours.count < theirs.count { ours += [UInt64](repeating: 0, count: theirs.count - ours.count) }
            for (index, word) in theirs.enumerated() {
                common += (ours[index] & word).nonzeroBitCount
                ours[index] |= word
            }
            words[publisher] = ours
        }
        count += other.count - common
        return common
    }
}

extension [UInt64] {
    fileprivate mutating func withBit(at index: Int, _ body: (inout UInt64) -> Bool) -> Bool {
        while count <= index { append(0) }
        return body(&self[index])
    }
}
