// Apple's broadcast channels: one notification on a channel updates the Live Activities of all subscribed devices.
//
// Sources: Apple's documentation "Sending channel management requests to APNs", "Sending broadcast push notification requests to
// APNs" and "Handling error responses from Apple Push Notification service".

internal import TextForms

extension Environment {
    /// Apple's host for channel management; broadcasts go to `host`.
    package var channelHost: String {
        switch self {
        case .production: "api-manage-broadcast.push.apple.com"
        case .sandbox: "api-manage-broadcast.sandbox.push.apple.com"
        }
    }

    package var channelPort: UInt16 {
        switch self {
        case .production: 2_196
        case .sandbox: 2_195
        }
    }
}

/// The storage policy of a channel for offline devices, fixed at its creation.
package enum ChannelStorage: Int64, Sendable, CaseIterable {
    case none = 0
    /// Apple stores the last notification for up to eight hours.
    case last = 1

    package var name: String {
        switch self {
        case .none: "none"
        case .last: "last"
        }
    }

    package init?(name: String) {
        guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = found
    }
}

package struct Broadcast: Sendable, Equatable {
    package var channelID: String
    /// The expiration in Unix seconds, or 0 for no storage; a channel without storage accepts only 0.
    package var expiration: Int64
    package var priority: Int
    package var body: [UInt8]

    package init(channelID: String, expiration: Int64, priority: Int, body: [UInt8]) {
        (self.channelID, self.expiration, self.priority, self.body) = (channelID, expiration, priority, body)
    }
}

package struct ChannelRequest: Sendable, Equatable {
    package enum Call: Sendable, Equatable {
        case create(ChannelStorage)
        case read(String)
        case delete(String)
        case list
        case broadcast(Broadcast)
    }

    package static let broadcastByteCount = 5_120
    /// Apple documents no maximum; this bound limits the header field.
    package static let channelIDByteCount = 512

    /// The app's bundle id, without a suffix.
    package var topic: String
    package var call: Call

    package init(topic: String, call: Call) { (self.topic, self.call) = (topic, call) }

    /// Whether the request goes to `Environment.channelHost` instead of `Environment.host`.
    package var isManagement: Bool {
        if case .broadcast = call { false } else { true }
    }

    package var method: String {
        switch call {
        case .create, .broadcast: "POST"
        case .read, .list: "GET"
        case .delete: "DELETE"
        }
    }

    package var path: String {
        switch call {
        case .create, .read, .delete: "/1/apps/\(topic)/channels"
        case .list: "/1/apps/\(topic)/all-channels"
        case .broadcast: "/4/broadcasts/apps/\(topic)"
        }
    }

    /// The value of the header `apns-channel-id`.
    package var channelID: String? {
        switch call {
        case .create, .list: nil
        case .read(let id), .delete(let id): id
        case .broadcast(let broadcast): broadcast.channelID
        }
    }

    package var body: [UInt8] {
        switch call {
        case .create(let storage):
            Array("{\"message-storage-policy\":\(storage.rawValue),\"push-type\":\"LiveActivity\"}".utf8)
        case .read, .delete, .list: []
        case .broadcast(let broadcast): broadcast.body
        }
    }

    /// - Parameter facts: the facts of a broadcast's body.
    /// - Returns: the first violation of Apple's rules, or `nil` if the request may be sent.
    package func breach(_ facts: BodyFacts) -> RuleBreach? {
        guard topic.isPlain(with: ".-"), (1...Bounds.topicByteCount).contains(topic.utf8.count),
            !topic.hasSuffix(".push-type.liveactivity"), !topic.hasSuffix(".voip")
        else { return RuleBreach(reason: "TopicDisallowed", advice: "topic is the app's bundle id, without a suffix") }
        if let channelID {
            guard !channelID.isEmpty else {
                return RuleBreach(reason: "MissingChannelId", advice: "give the channelId that the creation answered")
            }
            guard channelID.utf8.count <= Self.channelIDByteCount, Self.isBase64(channelID) else {
                return RuleBreach(reason: "BadChannelId", advice: "channelId is base64, as the creation answered it")
            }
        }
        guard case .broadcast(let broadcast) = call else { return nil }
        guard broadcast.expiration >= 0 else {
            return RuleBreach(reason: "BadExpirationDate", advice: "an expiration is a Unix time in seconds, or 0")
        }
        guard [1, 5, 10].contains(broadcast.priority) else {
            return RuleBreach(reason: "BadPriority", advice: "a priority is 1, 5 or 10")
        }
        guard broadcast.body.count <= Self.broadcastByteCount else {
            return RuleBreach(reason: "PayloadTooLarge", advice: "a broadcast has at most 5,120 bytes")
        }
        guard facts.isObject, facts.hasAps, facts.event != nil, facts.hasTimestamp else {
            return RuleBreach(
                reason: "BadRequestPayload", advice: "the body is an object whose aps has event and timestamp")
        }
        // A broadcast cannot start an activity, because only devices with a running activity are subscribed.
        guard facts.event == "update" || facts.event == "end" else {
            return RuleBreach(reason: "BadRequestPayload", advice: "aps.event of a broadcast is update or end")
        }
        return nil
    }

    private static func isBase64(_ text: String) -> Bool {
        let digits = text.utf8.drop { $0 != UInt8(ascii: "=") }
        return text.utf8.count % 4 == 0 && digits.count <= 2 && digits.allSatisfy { $0 == UInt8(ascii: "=") }
            && text.utf8.dropLast(digits.count).allSatisfy {
                $0.isDigit || $0.isLetter || $0 == UInt8(ascii: "+") || $0 == UInt8(ascii: "/")
            }
    }
}
