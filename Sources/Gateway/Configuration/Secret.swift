/// Text that must not reach a log, an error or a debugger's print: every description of it is the same word.
package struct Secret: Hashable, Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The text itself.
    ///
    /// Say beside each use where it goes.
    package let exposed: String

    package init(_ text: String) { exposed = text }

    package var bytes: [UInt8] { Array(exposed.utf8) }
    package var description: String { "(secret)" }
    package var debugDescription: String { "(secret)" }
    package var customMirror: Mirror { Mirror(self, children: []) }

    /// Compares every byte of a stranger's `candidate`, so that the time taken tells at most the length.
    package func matches(_ candidate: some Collection<UInt8>) -> Bool {
        let own = exposed.utf8
        guard own.count == candidate.count else { return false }
        var difference: UInt8 = 0
        for (left, right) in zip(own, candidate) { difference |= left ^ right }
        return difference == 0
    }
}
