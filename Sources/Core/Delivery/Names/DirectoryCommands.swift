// Steps about aliases, tags, blacklist and badge for one bucket, and their answers. The module Directory combines them
// into operations over several buckets (docs/build/Directory.md).

package import Wire

/// An alias: its text for people, its digest for rows; the first 12 bits of the digest are the bucket of its row.
///
/// A vendor token has such a name, too, without a text: its row among those of aliases names the token's owner.
package struct AliasName: Hashable, Sendable, Codable {
    package let high: UInt64
    package let low: UInt64
    /// The digest of the app's own kind of alias; 0 for aliases without a type.
    ///
    /// A device has one alias of each type, and the same text under two types is two aliases.
    package let type: UInt64
    package let text: String
    package init(high: UInt64, low: UInt64, type: UInt64 = 0, text: String) {
        (self.high, self.low, self.type, self.text) = (high, low, type, text)
    }

    package var bucket: Bucket { Bucket(digest: high) }
    package static func == (left: AliasName, right: AliasName) -> Bool {
        left.high == right.high && left.low == right.low
    }
    package func hash(into hasher: inout Hasher) { hasher.combine(low) }
}

/// A tag: its text for people, its digest for rows.
///
/// The digest is never 0, which stands for every device.
package struct TagName: Hashable, Sendable, Codable {
    package let digest: UInt64
    package let text: String
    package init(digest: UInt64, text: String) { (self.digest, self.text) = (digest, text) }

    package static func == (left: TagName, right: TagName) -> Bool { left.digest == right.digest }
    package func hash(into hasher: inout Hasher) { hasher.combine(digest) }
}

/// A device that may have an alias, as the alias's row names it; or the owner of a token.
package struct AliasEntry: Hashable, Sendable, Codable {
    package var cid: DeviceID
    package var bucket: Bucket
    /// When it was reserved, in gateway time; unique, so it names the reservation.
    ///
    /// Of a token's owner: when the device registered the token.
    package var stamp: GatewayTime
    package init(cid: DeviceID, bucket: Bucket, stamp: GatewayTime) {
        (self.cid, self.bucket, self.stamp) = (cid, bucket, stamp)
    }
}

/// How a server changes a device's stored badge.
package enum BadgeChange: Hashable, Sendable, Codable {
    case set(Int32)
    case add(Int32)
}

/// One step, for one bucket; each gets one answer, and not before what the answer says is durable.
package enum DirectoryStep: Sendable, Codable {
    // For the alias's bucket.
    /// Notes that a device will get the alias: `.reserved`, `.full`.
    case reserve(AliasName, DeviceID, Bucket)
    /// Removes these, unless they were reserved again: `.done`.
    case release(AliasName, [AliasEntry])
    /// `.members`.
    case members(AliasName)

    /// Makes a device the owner of a token, unless the row names another one that has not lost it: `.tokenTaken`,
    /// `.tokenHeld`.
    case takeToken(AliasName, AliasEntry, lost: AliasEntry?)

    // For the device's bucket; each may answer `.unknown`.
    /// `.aliasSet`; `.late` for a reservation past its lifetime; `.overtaken` by others that were released since.
    case setAlias(DeviceID, AliasName, stamp: GatewayTime)
    /// `.aliasCleared`, `.notHeld`.
    ///
    /// The stamp is that of the alias row's entry; 0 for an unknown one.
    case clearAlias(DeviceID, AliasName, stamp: GatewayTime)
    /// `.held`, `.notHeld`.
    case holds(DeviceID, AliasName, stamp: GatewayTime)
    /// `.done`, `.tooMany`, `.tooOften`.
    case replaceTags(DeviceID, [TagName])
    /// `.done`, `.tooMany`.
    case addTag(DeviceID, TagName)
    /// `.done`.
    case removeTag(DeviceID, TagName)
    /// `.done`.
    case setBlacklisted(DeviceID, Bool)
    /// `.done`.
    case setBadge(DeviceID, BadgeChange)
    /// `.device`.
    case describe(DeviceID)
    /// Removes a token that another device has, as far as it was registered up to the stamp: `.done`.
    case loseToken(DeviceID, AliasName, stamp: GatewayTime)
    /// The token's row names the device, and no other device has the token: `.done`.
    case confirmToken(DeviceID, AliasName, stamp: GatewayTime)

    // For all buckets of a loop.
    /// The number of devices in every `stride`-th bucket, from the first on, for which the expression is true:
    /// `.count`.
    case count(TagExpression, first: Int, stride: Int)
}

package struct DirectoryCommand: Sendable, Codable {
    package var origin: Origin
    package var app: AppKey
    /// The bucket that the step is for; the first one for `count`.
    package var bucket: Bucket
    package var step: DirectoryStep
    package init(origin: Origin, app: AppKey, bucket: Bucket, step: DirectoryStep) {
        (self.origin, self.app, self.bucket, self.step) = (origin, app, bucket, step)
    }
}

package enum DirectoryReply: Sendable, Equatable, Codable {
    case done
    case reserved(stamp: GatewayTime)
    /// The alias's row has as many devices as an alias may name.
    case full([AliasEntry])
    case members([AliasEntry])
    /// The device has the alias now; its previous one, unless it is the same, is to be released.
    case aliasSet(previous: AliasName?, stamp: GatewayTime)
    case late
    case overtaken
    /// The device had the alias; its reservation can be released.
    case aliasCleared(stamp: GatewayTime)
    case held
    /// The device does not have the alias; when `isStale`, it cannot get it by that reservation any more.
    case notHeld(isStale: Bool)
    case tokenTaken
    /// The token's row names another device.
    case tokenHeld(AliasEntry)
    case tooMany
    case tooOften
    case device(DeviceDetail)
    case count(Int)
    /// No such device in this app.
    case unknown
    /// A reader could not read the store, or the store takes no writes: nothing changed, ask again.
    case failed
}

/// A device as the user endpoints show it.
package struct DeviceDetail: Sendable, Equatable, Codable {
    /// At most one of each type.
    package var aliases: [AliasName]
    package var tags: [TagName]
    package var badge: Int32
    package var isBlacklisted: Bool
    package var isConnected: Bool
    package var isReachable: Bool
    package var pushModeOff: Bool
    package var registeredAt: GatewayTime
    package var lastSeenAt: GatewayTime
    /// How many sessions it had.
    package var sessionCount: UInt64
    /// The usable alert token, whole, and the topic it is for; empty without one.
    package var token: String
    package var topic: String

    package init(
        aliases: [AliasName] = [], tags: [TagName] = [], badge: Int32 = 0, isBlacklisted: Bool = false,
        isConnected: Bool = false, isReachable: Bool = false, pushModeOff: Bool = false, registeredAt: GatewayTime = 0,
        lastSeenAt: GatewayTime = 0, sessionCount: UInt64 = 0, token: String = "", topic: String = ""
    ) {
        (self.aliases, self.tags, self.badge, self.isBlacklisted) = (aliases, tags, badge, isBlacklisted)
        (self.isConnected, self.isReachable, self.pushModeOff) = (isConnected, isReachable, pushModeOff)
        (self.registeredAt, self.lastSeenAt, self.sessionCount) = (registeredAt, lastSeenAt, sessionCount)
        (self.token, self.topic) = (token, topic)
    }

    /// The alias of a type; 0 for the one without a type.
    package func alias(ofType type: UInt64 = 0) -> AliasName? { aliases.first { $0.type == type } }
}

/// A token of a device, by its name, and when the device registered it.
package struct TokenStamp: Sendable, Equatable {
    package var name: AliasName
    package var stamp: GatewayTime
    package init(name: AliasName, stamp: GatewayTime) { (self.name, self.stamp) = (name, stamp) }
}

/// A durable change of a device's tokens, which the tokens' rows are to follow.
package struct TokenNews: Sendable, Equatable {
    package var app: AppKey
    package var cid: DeviceID
    package var bucket: Bucket
    /// Tokens that the device registered, and that no row is known to name as its own.
    package var claims: [TokenStamp]
    /// Tokens that the device has no more.
    package var releases: [TokenStamp]
    package init(app: AppKey, cid: DeviceID, bucket: Bucket, claims: [TokenStamp], releases: [TokenStamp]) {
        (self.app, self.cid, self.bucket, self.claims, self.releases) = (app, cid, bucket, claims, releases)
    }

    /// The device as the row of one of its tokens names it.
    package func entry(_ token: TokenStamp) -> AliasEntry { AliasEntry(cid: cid, bucket: bucket, stamp: token.stamp) }
}
