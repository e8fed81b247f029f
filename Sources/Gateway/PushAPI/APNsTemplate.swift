package import Delivery

/// An app's defaults for APNs bodies: `apps[].apns.template`.
///
/// Values of the publisher take precedence.
package struct APNsTemplate: Sendable, Equatable {
    /// The form in which a body carries the publisher's `transmission`, if it fits and the publisher gives no `payload`.
    package enum Transmission: String, Sendable, CaseIterable {
        /// As text under the top-level key `payload`.
        case payload
        /// As members beside `aps` if the text is a JSON object; any other text as `payload`.
        case members
        /// Not at all; the body then has only the ids.
        case none
    }

    package var transmission = Transmission.payload
    /// Whether each alert gets `mutable-content`, so that the app's service extension runs.
    package var alertsAreMutable = false
    /// Whether a `notification` without `push_channel.ios` shows its title and body.
    package var showsNotifications = false
    /// Whether a push without visible content is sent as a silent push.
    package var wakesApp = false

    // Defaults for an alert without `aps`, which has only a title and a body.
    /// The sound; empty for an alert without sound.
    package var sound = "default"
    package var badge = VendorContent.Badge.none
    /// The category; empty to omit the key, which also applies to `threadID`.
    package var category = ""
    package var threadID = ""
    package var interruptionLevel: InterruptionLevel?

    package enum InterruptionLevel: String, Sendable, CaseIterable {
        case passive, active
        case timeSensitive = "time-sensitive"
        case critical
    }

    package init() {}

    /// Parses a badge as in `auto_badge`; `nil` for an invalid text.
    package static func badge(_ text: String) -> VendorContent.Badge? {
        guard text.utf8.count <= Limits.badgeDigitCount + 1, let number = Int32(text) else { return nil }
        return text.hasPrefix("+") || text.hasPrefix("-") ? .add(number) : .set(number)
    }
}
