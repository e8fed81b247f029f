// The gateway applies the rules about contents when it accepts a push. The sender applies all of them.

internal import TextForms

/// A rule violation that prevents a job from being sent; `reason` is the result's reason, `advice` describes the fix.
package struct RuleBreach: Sendable, Equatable {
    package var reason: StaticString
    package var advice: StaticString

    package static func == (left: RuleBreach, right: RuleBreach) -> Bool { "\(left.reason)" == "\(right.reason)" }
}

/// Apple's rules that can be checked before a request is sent, since some of Apple's answers mislead or are missing.
package enum RequestRules {
    /// - Returns: the first violation, or `nil` if the request may be sent.
    package static func breach(of notification: Notification, _ body: BodyFacts) -> RuleBreach? {
        form(of: notification) ?? size(of: notification)
            ?? breach(of: body, notification.pushType, notification.tokenKind)
    }

    /// Checks a collapse id, empty for none; as an HTTP field it allows no line end and no space at either end.
    package static func breach(ofCollapseID id: some BidirectionalCollection<UInt8>) -> RuleBreach? {
        let isTaken =
            id.count <= Bounds.collapseIDByteCount && id.allSatisfy { (0x20...0x7E).contains($0) } && id.first != 0x20
            && id.last != 0x20
        return isTaken
            ? nil
            : RuleBreach(
                reason: "BadCollapseId",
                advice: "a collapse id has at most 64 printable ASCII characters and no blank at an end")
    }

    private static func form(of notification: Notification) -> RuleBreach? {
        let digits = notification.token.utf8
        guard Bounds.tokenDigits.contains(digits.count), digits.count % 2 == 0, digits.allSatisfy({ $0.isHexDigit })
        else {
            return RuleBreach(
                reason: "BadDeviceToken",
                advice: "the token is no hexadecimal text: the app must send the token's bytes in hex")
        }
        let topic = notification.topic.utf8
        guard (1...Bounds.topicByteCount).contains(topic.count), topic.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return RuleBreach(reason: "MissingTopic", advice: "give the app's bundle id as apns.topic of the app")
        }
        if let breach = breach(ofCollapseID: notification.collapseID.utf8) { return breach }
        guard notification.id.isUUID else {
            return RuleBreach(reason: "BadMessageId", advice: "apns-id is a UUID: the job is damaged")
        }
        guard notification.expiration >= 0 else {
            return RuleBreach(reason: "BadExpirationDate", advice: "an expiration is a Unix time in seconds, or 0")
        }
        guard [1, 5, 10].contains(notification.priority) else {
            return RuleBreach(reason: "BadPriority", advice: "a priority is 1, 5 or 10")
        }
        return kind(of: notification)
    }

    /// A push must match its token's kind.
    private static func kind(of notification: Notification) -> RuleBreach? {
        let expected: TokenKind
        switch (notification.pushType, notification.tokenKind) {
        case (.alert, .alert), (.background, .alert), (.voip, .voip), (.liveactivity, .liveActivity),
            (.liveactivity, .liveActivityStart):
            return nil
        case (.alert, _), (.background, _): expected = .alert
        case (.voip, _): expected = .voip
        case (.liveactivity, _): expected = .liveActivity
        }
        switch expected {
        case .alert:
            return RuleBreach(reason: "InvalidPushType", advice: "alerts and background pushes go to alert tokens")
        case .voip: return RuleBreach(reason: "InvalidPushType", advice: "VoIP pushes go to VoIP tokens")
        case .liveActivity, .liveActivityStart:
            return RuleBreach(reason: "InvalidPushType", advice: "Live Activity pushes go to an activity's token")
        }
    }

    private static func size(of notification: Notification) -> RuleBreach? {
        if notification.body.isEmpty {
            return RuleBreach(reason: "PayloadEmpty", advice: "the push has no body")
        }
        guard notification.body.count > Bounds.bodyByteCount(of: notification.pushType) else { return nil }
        return RuleBreach(
            reason: "PayloadTooLarge",
            advice: "Apple takes bodies of 4,096 bytes, for VoIP of 5,120: send ids, fetch the rest")
    }

    /// Checks a body's members, whose rules depend on the push type and the token's kind.
    package static func breach(of body: BodyFacts, _ type: PushType, _ kind: TokenKind) -> RuleBreach? {
        guard body.isObject else {
            return RuleBreach(reason: "BadBody", advice: "the body is no JSON object")
        }
        switch type {
        case .alert, .voip: return nil
        case .background:
            guard body.isContentAvailable, !body.hasAlert, !body.hasSound, !body.hasBadge else {
                return RuleBreach(
                    reason: "BadBackgroundBody",
                    advice: "a background push has content-available 1 and neither alert nor sound nor badge")
            }
            return nil
        case .liveactivity: return activity(kind, body)
        }
    }

    private static func activity(_ kind: TokenKind, _ body: BodyFacts) -> RuleBreach? {
        guard let event = body.event, ["start", "update", "end"].contains(event) else {
            return RuleBreach(
                reason: "BadActivityBody", advice: "aps.event of a Live Activity push is start, update or end")
        }
        guard body.hasTimestamp else {
            return RuleBreach(
                reason: "BadActivityBody", advice: "aps.timestamp of a Live Activity push is a Unix time in seconds")
        }
        guard (event == "start") == (kind == .liveActivityStart) else {
            return RuleBreach(
                reason: "BadActivityBody",
                advice: "start goes to the push-to-start token; update and end go to the activity's own token")
        }
        guard event == "end" || body.hasContentState else {
            return RuleBreach(reason: "BadActivityBody", advice: "start and update carry aps.content-state")
        }
        guard event != "start" || body.hasAttributesType && body.hasAttributes else {
            return RuleBreach(
                reason: "BadActivityBody", advice: "start carries aps.attributes-type and aps.attributes")
        }
        return nil
    }
}
