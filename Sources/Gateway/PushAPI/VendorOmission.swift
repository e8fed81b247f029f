internal import Delivery

/// The part of a message that the vendor's body omits, so that only the live channel carries it.
enum VendorOmission {
    /// The body would be too large with the transmission.
    case tooLarge
    /// The transmission is not text, which JSON cannot carry.
    case noText
    /// The publisher's payload in the body differs from the transmission.
    case ownPayload
    /// The app's template excludes the transmission.
    case template
    /// A member of the transmission has a key that is already used beside `aps`.
    case members
    /// The body of a Live Activity has only the activity's state.
    case liveActivity
    /// The alert does not show the notification's title and body, or the notification has more fields.
    case notification

    /// Whether the body has only the ids although the template includes the transmission; the answer then lists the message in
    /// `idsOnly`.
    var isIDsOnly: Bool {
        switch self {
        case .tooLarge, .noText: true
        case .ownPayload, .template, .members, .liveActivity, .notification: false
        }
    }

    /// Whether the omission makes the message incomplete for a device that only the vendor channel reaches.
    ///
    /// The body for a Live Activity is meant to have only the activity's state, so that omission is no loss.
    var isLoss: Bool { self != .liveActivity }

    var explanation: String {
        switch self {
        case .tooLarge: "with the transmission the APNs body would be too large; make it shorter"
        case .noText: "the payload is no text, which JSON cannot carry; send a text"
        case .ownPayload: "push_channel.ios.payload differs from the transmission; leave it out or make both equal"
        case .template: "the app's template keeps the transmission out; give push_channel.ios the same text as payload"
        case .members: "a member of the transmission has a key that is taken beside aps; rename it"
        case .liveActivity: "the body of a Live Activity has the activity's state alone"
        case .notification:
            "the alert does not show all of the notification; make title and body equal, without further content"
        }
    }
}

extension VendorOmission {
    /// Refuses a message with an omission if, by its strategy, only the vendor channel would carry it.
    static func check(
        _ omission: VendorOmission?, _ strategy: Strategy, timeToLive: Int64
    ) throws(GetuiFault) {
        guard let omission, omission.isLoss, strategy.losesWhatVendorLeavesOut(timeToLive: timeToLive) else { return }
        let way = "\(omission.explanation), or use strategy 1, or 4 with a ttl"
        throw .invalid("strategy", "only APNs would carry the message, and not all of it: \(way)")
    }
}
