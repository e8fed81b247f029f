internal import Configuration
package import Wire

/// The value of a log field.
///
/// There is no initializer from bytes or from a `Secret`, so payloads, keys and tokens cannot be logged.
package enum LogValue: Equatable, Sendable {
    case integer(Int64)
    case number(Double)
    case boolean(Bool)
    /// Truncated to `LogLimits.textByteCount` bytes, with control characters escaped.
    case text(String)

    package init(_ number: some BinaryInteger) { self = .integer(Int64(clamping: number)) }
    package init(_ duration: Duration) {
        self = .integer(duration.components.seconds * 1_000 + duration.components.attoseconds / 1_000_000_000_000_000)
    }
    package init(_ identifier: some WideIdentifier) { self = .text(identifier.description) }
    package init(_ error: any Error) { self = .text(String(describing: error)) }

    /// Returns the first characters of a token, enough to distinguish tokens but useless to an attacker.
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

package enum LogLimits {
    /// The limit of a text, beyond which it ends in an ellipsis, so that lines stay below the limits of log collectors.
    package static let textByteCount = 512
    package static let tokenPrefixCount = 8
    /// The timeout of `flush` for a blocked stderr.
    static let flushMilliseconds: UInt64 = 2_000
    /// The time for which the log's thread retries after `close`, in addition to `flush`.
    static let closeMilliseconds: UInt64 = 200
    /// The most lines queued for a slow stderr, about a megabyte.
    package static let waitingLineCount = 4_096
    /// The most lines written for one event within `repeatWindow`; further lines are only counted.
    package static let repeatCount = 20
    /// The window of `repeatCount`, in milliseconds.
    package static let repeatWindow: Int64 = 10_000
}
