package import Delivery
package import Wire

package struct ListTarget: Sendable, Equatable {
    package var cid: DeviceID
    package var bucket: Bucket
    package var digest: UInt64
    /// The tail of the msgId that a revoke withdraws; 0 for an ordinary message.
    package var revokedDigest: UInt64 = 0

    package init(cid: DeviceID, bucket: Bucket, digest: UInt64) {
        (self.cid, self.bucket, self.digest) = (cid, bucket, digest)
    }
}

/// One loop's part of a list: the shared content, and the devices of that loop.
///
/// It is immutable, so that it can be passed to another loop without copying anything per device.
package final class Fanout: Sendable {
    package let task: TaskID
    package let app: AppKey
    package let createdAt: GatewayTime
    package let content: MessageContent
    /// Whether the list is a bulk push.
    ///
    /// Its jobs are leased after those of single pushes. A device without a token gets a failed message; the call is not refused.
    package let isBulk: Bool
    package let route: UInt64
    /// The devices, each with its index in the call.
    package let targets: [(place: Int, target: ListTarget)]

    package init(
        task: TaskID, app: AppKey, createdAt: GatewayTime, content: MessageContent, isBulk: Bool, route: UInt64,
        targets: [(place: Int, target: ListTarget)]
    ) {
        (self.task, self.app, self.createdAt, self.content) = (task, app, createdAt, content)
        (self.isBulk, self.route, self.targets) = (isBulk, route, targets)
    }

    /// Calls `body` with each device's command, whose pointers are valid only during the call.
    package func forEach(_ body: (PublishCommand) -> Void) { forEach(in: targets.indices, body) }

    /// Calls `body` for some of the devices; `part` must be within `targets.indices`.
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

/// A list call in progress: it distributes devices to loops and collects their outcomes.
package struct ListRun {
    package private(set) var outcomes: [PublishOutcome?]
    package private(set) var missing: Int

    package init(count: Int) {
        outcomes = Array(repeating: nil, count: count)
        missing = count
    }

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

    /// - Returns: Whether this was the last outcome. A second outcome for the same index is ignored.
    package mutating func take(_ place: Int, _ outcome: PublishOutcome) -> Bool {
        guard outcomes.indices.contains(place), outcomes[place] == nil else { return false }
        outcomes[place] = outcome
        missing -= 1
        return missing == 0
    }
}
