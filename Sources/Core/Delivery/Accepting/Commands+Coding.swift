// Coding of commands and jobs. The compiler cannot synthesize it because tuples are not `Codable`.

internal import Wire

package struct WordPair: Codable, Sendable, Equatable {
    package var first: UInt64
    package var second: UInt64

    package init(_ words: (UInt64, UInt64)) { (first, second) = words }

    package var words: (UInt64, UInt64) { (first, second) }
}

extension LeaseCommand: Codable {
    private enum Key: String, CodingKey { case origin, channel, apps, limit, milliseconds, lease }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(origin, forKey: .origin)
        try container.encode(channel, forKey: .channel)
        try container.encodeIfPresent(apps, forKey: .apps)
        try container.encode(limit, forKey: .limit)
        try container.encode(leaseMilliseconds, forKey: .milliseconds)
        try container.encode(WordPair(leaseID), forKey: .lease)
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        self.init(
            origin: try container.decode(Origin.self, forKey: .origin),
            channel: try container.decode(VendorChannel.self, forKey: .channel),
            apps: try container.decodeIfPresent(Set<AppKey>.self, forKey: .apps),
            limit: try container.decode(Int.self, forKey: .limit),
            leaseMilliseconds: try container.decode(Int64.self, forKey: .milliseconds),
            leaseID: try container.decode(WordPair.self, forKey: .lease).words)
    }
}

extension JobResult: Codable {
    private enum Key: String, CodingKey { case job, lease, outcome, reason, vendorID, timestamp, retryAfter }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(job, forKey: .job)
        try container.encode(WordPair(leaseID), forKey: .lease)
        try container.encode(outcome, forKey: .outcome)
        try container.encode(reason, forKey: .reason)
        try container.encode(vendorID, forKey: .vendorID)
        try container.encode(timestamp, forKey: .timestamp)
        try container.encode(retryAfterMilliseconds, forKey: .retryAfter)
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        self.init(
            job: try container.decode(MessageID.self, forKey: .job),
            leaseID: try container.decode(WordPair.self, forKey: .lease).words,
            outcome: try container.decode(Outcome.self, forKey: .outcome),
            reason: try container.decode(String.self, forKey: .reason),
            vendorID: try container.decode(String.self, forKey: .vendorID),
            timestamp: try container.decode(GatewayTime.self, forKey: .timestamp),
            retryAfterMilliseconds: try container.decode(Int64.self, forKey: .retryAfter))
    }
}

extension Job: Codable {
    private enum Key: String, CodingKey {
        case channel, message, lease, leasedUntil, task, app, cid, token, tokenKind, environment, topic, pushType,
            priority, expiration, collapseID, body, attempt, acceptedAt, dueAt
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(channel, forKey: .channel)
        try container.encode(message, forKey: .message)
        try container.encode(WordPair(leaseID), forKey: .lease)
        try container.encode(leasedUntil, forKey: .leasedUntil)
        try container.encode(task, forKey: .task)
        try container.encode(app, forKey: .app)
        try container.encode(cid, forKey: .cid)
        try container.encode(token, forKey: .token)
        try container.encode(tokenKind, forKey: .tokenKind)
        try container.encode(environment, forKey: .environment)
        try container.encode(topic, forKey: .topic)
        try container.encode(pushType, forKey: .pushType)
        try container.encode(priority, forKey: .priority)
        try container.encode(expiration, forKey: .expiration)
        try container.encode(collapseID, forKey: .collapseID)
        try container.encode(body, forKey: .body)
        try container.encode(attempt, forKey: .attempt)
        try container.encode(acceptedAt, forKey: .acceptedAt)
        try container.encode(dueAt, forKey: .dueAt)
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        self.init(
            channel: try container.decode(VendorChannel.self, forKey: .channel),
            message: try container.decode(MessageID.self, forKey: .message),
            leaseID: try container.decode(WordPair.self, forKey: .lease).words,
            leasedUntil: try container.decode(GatewayTime.self, forKey: .leasedUntil),
            task: try container.decode(TaskID.self, forKey: .task),
            app: try container.decode(AppKey.self, forKey: .app),
            cid: try container.decode(DeviceID.self, forKey: .cid),
            token: try container.decode(String.self, forKey: .token),
            tokenKind: try container.decode(TokenKind.self, forKey: .tokenKind),
            environment: try container.decode(TokenEnvironment.self, forKey: .environment),
            topic: try container.decode(String.self, forKey: .topic),
            pushType: try container.decode(PushType.self, forKey: .pushType),
            priority: try container.decode(UInt8.self, forKey: .priority),
            expiration: try container.decode(GatewayTime.self, forKey: .expiration),
            collapseID: try container.decode(String.self, forKey: .collapseID),
            body: try container.decode([UInt8].self, forKey: .body),
            attempt: try container.decode(Int.self, forKey: .attempt),
            acceptedAt: try container.decode(GatewayTime.self, forKey: .acceptedAt),
            dueAt: try container.decode(GatewayTime.self, forKey: .dueAt))
    }
}
