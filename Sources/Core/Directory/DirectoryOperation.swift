// Operations on aliases, tags, blacklist and badge that span several buckets. They are values without I/O: a coordinator sends
// their steps and passes them the replies.

package import Delivery
package import Wire

package struct DevicePlace: Hashable, Sendable, Codable {
    package var cid: DeviceID
    package var bucket: Bucket
    package init(cid: DeviceID, bucket: Bucket) { (self.cid, self.bucket) = (cid, bucket) }
}

package struct AliasItem: Hashable, Sendable {
    package var device: DevicePlace
    package var name: AliasName
    package init(device: DevicePlace, name: AliasName) { (self.device, self.name) = (device, name) }
}

/// A step for one bucket, or for all buckets of one loop.
package struct StepToSend: Sendable {
    package enum Target: Sendable, Equatable { case bucket(Bucket), loop(Int) }
    /// The item's number and the step's number within the item; the reply carries it.
    package var request: UInt64
    package var target: Target
    package var step: DirectoryStep

    init(_ request: UInt64, _ bucket: Bucket, _ step: DirectoryStep) {
        (self.request, target, self.step) = (request, .bucket(bucket), step)
    }
    init(_ request: UInt64, loop: Int, _ step: DirectoryStep) {
        (self.request, target, self.step) = (request, .loop(loop), step)
    }
}

package enum ItemOutcome: Sendable, Equatable {
    case done
    /// The item to undo was not set.
    case notHeld
    case unknown
    /// The alias has its maximum number of devices.
    case full
    case tooMany
    case tooOften
    case device(DeviceDetail)
    /// An owner's store cannot be read or written now; the caller retries.
    case failed
}

/// One call about aliases, tags, blacklist or badge, from its first step to its result.
package struct DirectoryOperation: Sendable {
    package enum Work: Sendable {
        case bind([AliasItem])
        case unbind([AliasItem])
        case unbindAll(AliasName)
        case resolve([AliasName])
        case each([DevicePlace], EachStep)
        case count(TagExpression)
        /// Update the rows of a device's tokens: one item per claim, then one per release.
        case tokens(TokenNews)
    }

    package enum EachStep: Sendable {
        case replaceTags([TagName]), addTags([TagName]), removeTags([TagName]), setBlacklisted(Bool), setBadge(
            BadgeChange),
            describe, describeWithAttributes

        func step(_ cid: DeviceID) -> DirectoryStep {
            switch self {
            case .replaceTags(let tags): .replaceTags(cid, tags)
            case .addTags(let tags): .addTags(cid, tags)
            case .removeTags(let tags): .removeTags(cid, tags)
            case .setBlacklisted(let isOn): .setBlacklisted(cid, isOn)
            case .setBadge(let change): .setBadge(cid, change)
            case .describe: .describe(cid)
            case .describeWithAttributes: .describe(cid, readsAttributes: true)
            }
        }
    }

    /// The maximum number of concurrent steps of one item; it exceeds `AliasLimits.devicesPerAlias`.
    static let stepsPerItem: UInt64 = 256

    private let work: Work
    private let loopCount: Int
    private var bindings: [AliasBinding] = []
    private var sweeps: [AliasSweep] = []
    private var claims: [TokenClaiming] = []
    private var missing = 0
    /// The outcomes in item order, complete when `isDone`.
    package private(set) var outcomes: [ItemOutcome]
    /// The devices bound to each requested alias, in request order.
    package private(set) var members: [[DevicePlace]] = []
    package private(set) var count = 0

    package init(_ work: Work, loopCount: Int) {
        (self.work, self.loopCount) = (work, loopCount)
        let itemCount =
            switch work {
            case .bind(let items), .unbind(let items): items.count
            case .each(let devices, _): devices.count
            case .unbindAll: 1
            case .resolve(let names): names.count
            case .count: loopCount
            case .tokens(let news): news.claims.count + news.releases.count
            }
        outcomes = Array(repeating: .failed, count: itemCount)
        missing = itemCount
    }

    package var isDone: Bool { missing == 0 }

    package mutating func start() -> [StepToSend] {
        switch work {
        case .bind(let items):
            bindings = items.enumerated().map { AliasBinding($1, number: UInt64($0), binds: true) }
            return bindings.indices.flatMap { bindings[$0].start() }
        case .unbind(let items):
            bindings = items.enumerated().map { AliasBinding($1, number: UInt64($0), binds: false) }
            return bindings.indices.flatMap { bindings[$0].start() }
        case .unbindAll(let name):
            sweeps = [AliasSweep(name, number: 0, clears: true)]
            return sweeps[0].start()
        case .resolve(let names):
            sweeps = names.enumerated().map { AliasSweep($1, number: UInt64($0), clears: false) }
            members = Array(repeating: [], count: names.count)
            return sweeps.indices.flatMap { sweeps[$0].start() }
        case .each(let devices, let step):
            return devices.enumerated().map {
                StepToSend(UInt64($0) * Self.stepsPerItem, $1.bucket, step.step($1.cid))
            }
        case .count(let expression):
            return (0..<loopCount).map {
                StepToSend(
                    UInt64($0) * Self.stepsPerItem, loop: $0, .count(expression, first: $0, stride: loopCount))
            }
        case .tokens(let news):
            claims = news.claims.enumerated().map { number, token in
                TokenClaiming(token.name, by: news.entry(token), number: UInt64(number))
            }
            let releases = news.releases.enumerated().map { place, token in
                StepToSend(
                    UInt64(claims.count + place) * Self.stepsPerItem, token.name.bucket,
                    .release(token.name, [news.entry(token)]))
            }
            return claims.indices.flatMap { claims[$0].start() } + releases
        }
    }

    /// Handles the reply to one step; a reply to a step that was not sent has no effect.
    package mutating func receive(_ request: UInt64, _ reply: DirectoryReply) -> [StepToSend] {
        let item = Int(request / Self.stepsPerItem)
        guard outcomes.indices.contains(item), !isDone else { return [] }
        if bindings.indices.contains(item) {
            guard bindings[item].outcome == nil else { return [] }
            let next = bindings[item].receive(request % Self.stepsPerItem, reply)
            if let outcome = bindings[item].outcome { end(item, outcome) }
            return next
        }
        if sweeps.indices.contains(item) {
            guard sweeps[item].outcome == nil else { return [] }
            let next = sweeps[item].receive(request % Self.stepsPerItem, reply)
            if let outcome = sweeps[item].outcome {
                if members.indices.contains(item) { members[item] = sweeps[item].held }
                end(item, outcome)
            }
            return next
        }
        if claims.indices.contains(item) {
            guard claims[item].outcome == nil else { return [] }
            let next = claims[item].receive(reply)
            if let outcome = claims[item].outcome { end(item, outcome) }
            return next
        }
        switch reply {
        case .done: end(item, .done)
        case .tooMany: end(item, .tooMany)
        case .tooOften: end(item, .tooOften)
        case .unknown: end(item, .unknown)
        case .device(let detail): end(item, .device(detail))
        case .count(let found):
            count += found
            end(item, .done)
        default: end(item, .failed)
        }
        return []
    }

    private mutating func end(_ item: Int, _ outcome: ItemOutcome) {
        outcomes[item] = outcome
        missing -= 1
    }
}
