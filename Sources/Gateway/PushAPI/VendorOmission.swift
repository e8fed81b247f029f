internal import Delivery

/// The part of a message that a vendor's body leaves out: only the live channel carries it.
enum VendorOmission {
    /// With the transmission the body would be too large.
    case tooLarge
    /// The transmission is no text, which JSON cannot carry.
    case noText
    /// The publisher gives the body another text as its payload.
    case ownPayload
    /// The app's template keeps the transmission out.
    case template
    /// A member of the transmission has a key that is taken beside `aps`.
    case members
    /// The body of a Live Activity has the activity's state alone.
    case liveActivity
    /// The notification has more than the title and the body that the alert shows, or the alert shows others.
    case notification

    /// The body has the ids alone where the transmission could stand; an answer names it in `idsOnly`.
    var isIDsOnly: Bool {
        switch self {
        case .tooLarge, .noText: true
        case .ownPayload, .template, .members, .liveActivity, .notification: false
        }
    }

    /// Whether a strategy may not leave it out.
    ///
    /// The state of a Live Activity is what its push is for, and there is no other way to say it.
    var isLoss: Bool { self != .liveActivity }

    /// Why, for the publisher, and what to do instead.
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
    /// Refuses a message that its strategy would let only the vendor carry, when its body leaves something out.
    static func check(
        _ omission: VendorOmission?, _ strategy: Strategy, timeToLive: Int64
    ) throws(GetuiFault) {
        guard let omission, omission.isLoss, strategy.losesWhatVendorLeavesOut(timeToLive: timeToLive) else { return }
        let way = "\(omission.explanation), or use strategy 1, or 4 with a ttl"
        throw .invalid("strategy", "only APNs would carry the message, and not all of it: \(way)")
    }
}
