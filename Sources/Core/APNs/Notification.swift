// Requests to Apple's push service and the meaning of its answers. This module uses no sockets, clocks or random numbers.
//
// Sources: Apple's documentation "Sending notification requests to APNs", "Handling notification responses from APNs",
// "Establishing a token-based connection to APNs" and "Starting and updating Live Activities with ActivityKit push
// notifications".

/// One of Apple's two services; a device token is valid in one of them only.
package enum Environment: String, Sendable, CaseIterable {
    case production, sandbox

    package var other: Environment { self == .production ? .sandbox : .production }

    package var host: String {
        switch self {
        case .production: "api.push.apple.com"
        case .sandbox: "api.sandbox.push.apple.com"
        }
    }
}

/// The values of the header `apns-push-type` that the gateway uses.
package enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity
}

/// The purpose of a device token; the names are those of the handoff API.
package enum TokenKind: String, Sendable, CaseIterable {
    case alert, voip, liveActivity, liveActivityStart
}

/// A request to Apple, built from a handoff job.
package struct Notification: Sendable, Equatable {
    package var token: String
    package var tokenKind: TokenKind
    package var environment: Environment
    /// The app's topic, with or without the push type's suffix.
    package var topic: String
    package var pushType: PushType
    package var priority: Int
    /// The expiration in Unix seconds, or 0 for no storage at Apple.
    package var expiration: Int64
    /// The collapse id, or empty for none.
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

    /// The header `apns-topic`; VoIP and Live Activity pushes have a suffix after the app's topic.
    package var fullTopic: String {
        let suffix: String
        switch pushType {
        case .voip: suffix = ".voip"
        case .liveactivity: suffix = ".push-type.liveactivity"
        case .alert, .background: return topic
        }
        return topic.hasSuffix(suffix) ? topic : topic + suffix
    }

    /// The header `apns-priority`; Apple rejects a background push with priority 10.
    package var effectivePriority: Int { pushType == .background ? 5 : priority }
}

package enum Bounds {
    package static let bodyByteCount = 4_096
    package static let voipBodyByteCount = 5_120
    package static let collapseIDByteCount = 64
    /// The allowed number of hexadecimal digits; tokens have 32 to 100 bytes today, but Apple documents no fixed length.
    package static let tokenDigits = 2...512
    package static let topicByteCount = 255
    /// The maximum length of a text whose content a rule reads.
    package static let shortTextByteCount = 64
    /// An upper bound of times in seconds that excludes times in milliseconds.
    static let latestSecond: Int64 = 99_999_999_999
    static let anyScore = Double.greatestFiniteMagnitude

    package static func bodyByteCount(of type: PushType) -> Int {
        type == .voip ? voipBodyByteCount : bodyByteCount
    }
}
