// APNs: what Apple's push service wants and what its answers mean. Pure: no socket, no clock, no random number.
//
// Sources: Apple's documentation "Sending notification requests to APNs", "Handling notification responses from APNs",
// "Establishing a token-based connection to APNs" and "Starting and updating Live Activities with ActivityKit push
// notifications".

/// One of Apple's two services: tokens of one mean nothing to the other.
package enum Environment: String, Sendable, CaseIterable {
    case production, sandbox

    package var other: Environment { self == .production ? .sandbox : .production }

    /// Apple's host.
    package var host: String {
        switch self {
        case .production: "api.push.apple.com"
        case .sandbox: "api.sandbox.push.apple.com"
        }
    }
}

/// The header `apns-push-type`, as far as the gateway has jobs for it.
package enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity
}

/// What a token is for; the names are those of the handoff API.
package enum TokenKind: String, Sendable, CaseIterable {
    case alert, voip, liveActivity, liveActivityStart
}

/// One request to Apple, as a handoff job describes it.
package struct Notification: Sendable, Equatable {
    package var token: String
    package var tokenKind: TokenKind
    package var environment: Environment
    /// The app's own topic, or with the suffix already.
    package var topic: String
    package var pushType: PushType
    package var priority: Int
    /// Absolute Unix seconds; 0: Apple must not store it.
    package var expiration: Int64
    /// Empty: none.
    package var collapseID: String
    /// A UUID in lower case.
    package var id: String
    package var body: [UInt8]

    package init(
        token: String, tokenKind: TokenKind, environment: Environment, topic: String, pushType: PushType,
        priority: Int, expiration: Int64, collapseID: String, id: String, body: [UInt8]
    ) {
        (self.token, self.tokenKind, self.environment, self.topic) = (token, tokenKind, environment, topic)
        (self.pushType, self.priority, self.expiration) = (pushType, priority, expiration)
        (self.collapseID, self.id, self.body) = (collapseID, id, body)
    }

    /// The header `apns-topic`: VoIP and Live Activities have topics of their own beside the app's.
    package var fullTopic: String {
        let suffix: String
        switch pushType {
        case .voip: suffix = ".voip"
        case .liveactivity: suffix = ".push-type.liveactivity"
        case .alert, .background: return topic
        }
        return topic.hasSuffix(suffix) ? topic : topic + suffix
    }

    /// The header `apns-priority`: a background push with 10 would be refused.
    package var effectivePriority: Int { pushType == .background ? 5 : priority }
}

/// Apple's bounds.
package enum Bounds {
    package static let bodyByteCount = 4_096
    package static let voipBodyByteCount = 5_120
    package static let collapseIDByteCount = 64
    /// Tokens have 32 to 100 bytes today; Apple says to assume no length.
    package static let tokenDigits = 2...512
    package static let topicByteCount = 255
    /// The longest text that a rule about a value reads.
    package static let shortTextByteCount = 64
    /// A time in seconds lies before it; a time in milliseconds would lie behind it.
    static let latestSecond: Int64 = 99_999_999_999
    static let anyScore = Double.greatestFiniteMagnitude

    package static func bodyByteCount(of type: PushType) -> Int {
        type == .voip ? voipBodyByteCount : bodyByteCount
    }
}
