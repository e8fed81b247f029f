package import Delivery
package import Wire

/// One device of a list, with its bucket and the tail of its msgId.
package struct ListTarget: Sendable, Equatable {
    package var cid: DeviceID
    package var bucket: Bucket
    package var digest: UInt64
    /// The tail of the msgId that a revoke withdraws there; 0 for an ordinary message.
    package var revokedDigest: UInt64 = 0

    package init(cid: DeviceID, bucket: Bucket, digest: UInt64) {
        (self.cid, self.bucket, self.digest) = (cid, bucket, digest)
    }
}

/// One loop's part of a list: the content shared by all, and the devices that live there.
///
/// Immutable, so that it may cross to another loop as it is: nothing is copied for a device.
package final class Fanout: Sendable {
    package let task: TaskID
    package let app: AppKey
    package let createdAt: GatewayTime
    package let content: MessageContent
    /// Bulk jobs lease after those of single pushes, and a missing token ends a message rather than the call.
    package let isBulk: Bool
    package let route: UInt64
    /// Each with its place in the call.
    package let targets: [(place: Int, target: ListTarget)]

    package init(
        task: TaskID, app: AppKey, createdAt: GatewayTime, content: MessageContent, isBulk: Bool, route: UInt64,
        targets: [(place: Int, target: ListTarget)]
    ) {
        (self.task, self.app, self.createdAt, self.content) = (task, app, createdAt, content)
        (self.isBulk, self.route, self.targets) = (isBulk, route, targets)
    }

    /// Calls `body` with each device's command; its pointers die when `body` returns.
    package func forEach(_ body: (PublishCommand) -> Void) { forEach(in: targets.indices, body) }

    /// The same for some of its devices; `part` lies within `targets.indices`.
    package func forEach(in part: Range<Int>, _ body: (PublishCommand) -> Void) {
        for (place, target) in targets[part] {
            var address = MessageContent.Target(
                origin: Origin(route: route, request: UInt64(place)), app: app, bucket: target.bucket,
                cid: target.cid, task: task, messageDigest: target.digest)
            address.isBulk = isBulk
            address.taskCreatedAt = createdAt
            address.revokedDigest = target.revokedDigest
            content.withCommand(for: address, body)
        }
    }
}

/// A list call on its way: deals devices to loops and gathers what became of them.
package struct ListRun {
    package private(set) var outcomes: [PublishOutcome?]
    package private(set) var missing: Int

    package init(count: Int) {
        outcomes = Array(repeating: nil, count: count)
        missing = count
    }

    /// One fan-out for each loop that has any of the devices: one message between loops for each.
    package static func deal(
        _ targets: [ListTarget], task: TaskID, app: AppKey, createdAt: GatewayTime, content: MessageContent,
        isBulk: Bool, route: UInt64, loopCount: Int
    ) -> [(loop: Int, fanout: Fanout)] {
        var parts = [[(place: Int, target: ListTarget)]](repeating: [], count: loopCount)
        for (place, target) in targets.enumerated() { parts[target.bucket.loop(of: loopCount)].append((place, target)) }
        return parts.indices.filter { !parts[$0].isEmpty }.map { loop in
            (
                loop,
                Fanout(
                    task: task, app: app, createdAt: createdAt, content: content, isBulk: isBulk, route: route,
                    targets: parts[loop])
            )
        }
    }

    /// - Returns: true when this was the last one; a second answer for a place is passed over.
    package mutating func take(_ place: Int, _ outcome: PublishOutcome) -> Bool {
        guard outcomes.indices.contains(place), outcomes[place] == nil else { return false }
        outcomes[place] = outcome
        missing -= 1
        return missing == 0
    }
}
