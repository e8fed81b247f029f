/// A text that must not appear in a log, an error or a debugger; all its descriptions are the same fixed word.
package struct Secret: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The secret itself; a comment at each use must state where the secret goes.
    package let exposed: String

    package init(_ text: String) { exposed = text }

    package var bytes: [UInt8] { Array(exposed.utf8) }
    package var description: String { "(secret)" }
    package var debugDescription: String { "(secret)" }
    package var customMirror: Mirror { Mirror(self, children: []) }

    /// Compares in constant time, so that the time reveals at most the length.
    package func matches(_ candidate: some Collection<UInt8>) -> Bool {
        let own = exposed.utf8
        guard own.count == candidate.count else { return false }
        var difference: UInt8 = 0
        for (left, right) in zip(own, candidate) { difference |= left ^ right }
        return difference == 0
    }
}
