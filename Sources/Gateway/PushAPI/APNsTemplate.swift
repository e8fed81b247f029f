package import Delivery

/// An app's defaults for APNs bodies: `apps[].apns.template`.
///
/// Values of the publisher take precedence.
package struct APNsTemplate: Sendable, Equatable {
    /// The form in which a body carries the publisher's `transmission`, if it fits and the publisher gives no `payload`.
    package enum Transmission: String, Sendable, CaseIterable {
        /// The text of the top-level key `payload`.
        case payload
        /// The members of a JSON object beside `aps`; any other text as `payload`.
        case members
        /// Not in the body, which then has only the ids.
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
    /// Empty for a silent alert.
    package var sound = "default"
    package var badge = VendorContent.Badge.none
    /// Empty to omit the key; the same applies to `threadID`.
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
