/// A gateway's number within its cluster, 1 to 1,023, assigned when the gateway joins.
///
/// A number is reused after a clean stop of its gateway, otherwise one day after the last lease renewal.
package struct NodeID: Hashable, Comparable, Sendable, CustomStringConvertible {
    package static let range: ClosedRange<UInt16> = 1...1_023

    package let number: UInt16

    package init?(_ number: some BinaryInteger) {
        guard let number = UInt16(exactly: number), Self.range.contains(number) else { return nil }
        self.number = number
    }

    package static func < (left: NodeID, right: NodeID) -> Bool { left.number < right.number }
    package var description: String { "\(number)" }
}
