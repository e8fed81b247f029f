package import Delivery

/// What an app adds to the bodies that APNs gets: `apps[].apns.template`.
///
/// What a publisher says of its own always wins.
package struct APNsTemplate: Sendable, Equatable {
    /// How a body carries the publisher's `transmission`, where it fits and the publisher gave no `payload`.
    package enum Transmission: String, Sendable, CaseIterable {
        /// As the text of the top-level key `payload`.
        case payload
        /// The members of a JSON object beside `aps`; any other text as `payload`.
        case members
        /// Not at all: the body has the ids alone.
        case none
    }

    package var transmission = Transmission.payload
    /// Each alert gets `mutable-content`, so that the app's service extension sees it.
    package var alertsAreMutable = false
    /// A `notification` without `push_channel.ios` shows its title and its body.
    package var showsNotifications = false
    /// A push with nothing to show wakes the app by a silent push.
    package var wakesApp = false

    // What an alert says that has no `aps` of its own: a title and a body alone.
    /// Empty: silent.
    package var sound = "default"
    package var badge = VendorContent.Badge.none
    /// Empty: the alert does not say it, as with the next one.
    package var category = ""
    package var threadID = ""
    package var interruptionLevel: InterruptionLevel?

    /// Apple's values.
    package enum InterruptionLevel: String, Sendable, CaseIterable {
        case passive, active
        case timeSensitive = "time-sensitive"
        case critical
    }

    package init() {}

    /// A badge as `auto_badge` writes it; `nil` for a text that is none.
    package static func badge(_ text: String) -> VendorContent.Badge? {
        guard text.utf8.count <= Limits.badgeDigitCount + 1, let number = Int32(text) else { return nil }
        return text.hasPrefix("+") || text.hasPrefix("-") ? .add(number) : .set(number)
    }
}
