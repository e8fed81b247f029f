internal import Configuration
package import Wire

/// A field's value.
///
/// There is no way in for bytes or a `Secret`: payloads, keys and tokens have no spelling here.
package enum LogValue: Equatable, Sendable {
    case integer(Int64)
    case number(Double)
    case boolean(Bool)
    /// Shown up to `LogLimits.textByteCount` bytes, control characters escaped.
    case text(String)

    package init(_ number: some BinaryInteger) { self = .integer(Int64(clamping: number)) }
    package init(_ duration: Duration) {
        self = .integer(duration.components.seconds * 1_000 + duration.components.attoseconds / 1_000_000_000_000_000)
    }
    package init(_ identifier: some WideIdentifier) { self = .text(identifier.description) }
    package init(_ error: any Error) { self = .text(String(describing: error)) }

    /// The first characters of a token, enough to tell two apart and useless to a reader of the log.
    package static func prefix(ofToken token: String) -> LogValue {
        let shown = min(LogLimits.tokenPrefixCount, token.count / 4)
        return .text(token.prefix(shown) + "…")
    }
}

extension LogValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral {
    package init(stringLiteral text: String) { self = .text(text) }
    package init(integerLiteral number: Int64) { self = .integer(number) }
    package init(booleanLiteral value: Bool) { self = .boolean(value) }
}

/// Bounds of the log.
package enum LogLimits {
    /// Longer texts end in an ellipsis; a line stays readable and below what collectors cut.
    package static let textByteCount = 512
    package static let tokenPrefixCount = 8
    /// How long the process waits on its way out for a stderr that takes nothing.
    static let flushMilliseconds: UInt64 = 2_000
    /// How long the log's thread goes on trying once the log is closed; `flush` has waited before.
    static let closeMilliseconds: UInt64 = 200
    /// Lines that wait for a slow stderr; about a megabyte.
    package static let waitingLineCount = 4_096
    /// Lines of one event within `repeatWindow`; the rest are counted.
    package static let repeatCount = 20
    /// In milliseconds.
    package static let repeatWindow: Int64 = 10_000
}
