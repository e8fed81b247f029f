// Steps on aliases, tags, blacklist and badge in one bucket, and their answers. The module Directory combines them into
// operations over several buckets (docs/build/Directory.md).

package import Wire

/// An alias: its text, and its digest for rows.
///
/// The first 12 bits of the digest are the bucket of its row.
///
/// A vendor token also has such a name, without a text. Its row in the alias table names the token's owner.
package struct AliasName: Hashable, Sendable, Codable {
    package let high: UInt64
    package let low: UInt64
    /// The digest of the app's alias type; 0 without a type.
    ///
    /// A device has one alias of each type. The same text under two types is two aliases.
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

/// A tag: its text, and its digest for rows.
///
/// The digest 0 is the roster of all devices. The other digests below `firstDigest` are the platforms of devices.
package struct TagName: Hashable, Sendable, Codable {
    /// The lowest digest of a tag; lower ones have other meanings.
    package static let firstDigest: UInt64 = 16
    package let digest: UInt64
    package let text: String
    package init(digest: UInt64, text: String) { (self.digest, self.text) = (digest, text) }

    /// Creates the name of a tag from a hash of its text; a hash below `firstDigest` is raised to it.
    package init(hash: UInt64, text: String) { self.init(digest: max(Self.firstDigest, hash), text: text) }

    package static func == (left: TagName, right: TagName) -> Bool { left.digest == right.digest }
    package func hash(into hasher: inout Hasher) { hasher.combine(digest) }
}

/// A device that may have an alias, as named in the alias's row; or the owner of a token.
package struct AliasEntry: Hashable, Sendable, Codable {
    package var cid: DeviceID
    package var bucket: Bucket
    /// The time of the reservation (gateway time), unique, so that it identifies the reservation.
    ///
    /// For a token's owner: the time at which the device registered the token.
    package var stamp: GatewayTime
    package init(cid: DeviceID, bucket: Bucket, stamp: GatewayTime) {
        (self.cid, self.bucket, self.stamp) = (cid, bucket, stamp)
    }
}

package enum BadgeChange: Hashable, Sendable, Codable {
    case set(Int32)
    case add(Int32)
}

/// A step for one bucket; one of the listed answers follows when its changes are durable.
package enum DirectoryStep: Sendable, Codable {
    // Steps for the alias's bucket.
    /// Reserve the alias for a device: `.reserved`, `.full`.
    case reserve(AliasName, DeviceID, Bucket)
    /// Remove entries, unless they were reserved again: `.done`.
    case release(AliasName, [AliasEntry])
    /// Return the entries: `.members`.
    case members(AliasName)

    /// Make a device the owner of a token, unless another owner has not lost it: `.tokenTaken`, `.tokenHeld`.
    case takeToken(AliasName, AliasEntry, lost: AliasEntry?)

    // Steps for the device's bucket. Each may answer `.unknown`.
    /// Set the alias: `.aliasSet`; `.late` after the reservation's lifetime; `.overtaken` if later reservations were released.
    case setAlias(DeviceID, AliasName, stamp: GatewayTime)
    /// Remove the alias: `.aliasCleared`, `.notHeld`.
    ///
    /// The stamp is that of the alias row's entry; 0 if unknown.
    case clearAlias(DeviceID, AliasName, stamp: GatewayTime)
    /// Check whether the device has the alias: `.held`, `.notHeld`.
    case holds(DeviceID, AliasName, stamp: GatewayTime)
    /// Replace all tags: `.done`, `.tooMany`, `.tooOften`.
    case replaceTags(DeviceID, [TagName])
    /// Add either all of the tags or none: `.done`, `.tooMany`.
    case addTags(DeviceID, [TagName])
    /// Remove tags: `.done`.
    case removeTags(DeviceID, [TagName])
    /// Set or clear the blacklist flag: `.done`.
    case setBlacklisted(DeviceID, Bool)
    /// Change the badge: `.done`.
    case setBadge(DeviceID, BadgeChange)
    /// Return the details: `.device`; without `readsAttributes`, its attributes are only the platform, which is in memory.
    case describe(DeviceID, readsAttributes: Bool? = nil)
    /// Remove a token that another device has registered, if this device registered it up to the stamp: `.done`.
    case loseToken(DeviceID, AliasName, stamp: GatewayTime)
    /// Record that the token's row names this device as its only owner: `.done`.
    case confirmToken(DeviceID, AliasName, stamp: GatewayTime)

    // Steps for all buckets of a loop.
    /// Count the devices that satisfy the expression, in every `stride`-th bucket from `first` on: `.count`.
    case count(TagExpression, first: Int, stride: Int)
}

package struct DirectoryCommand: Sendable, Codable {
    package var origin: Origin
    package var app: AppKey
    /// The bucket of the step; the first bucket for `count`.
    package var bucket: Bucket
    package var step: DirectoryStep
    package init(origin: Origin, app: AppKey, bucket: Bucket, step: DirectoryStep) {
        (self.origin, self.app, self.bucket, self.step) = (origin, app, bucket, step)
    }
}

package enum DirectoryReply: Sendable, Equatable, Codable {
    case done
    case reserved(stamp: GatewayTime)
    /// The alias has its maximum number of devices.
    case full([AliasEntry])
    case members([AliasEntry])
    /// The device has the alias now; the caller releases the previous alias, if there was a different one.
    case aliasSet(previous: AliasName?, stamp: GatewayTime)
    case late
    case overtaken
    /// The device had the alias; the caller can release its reservation.
    case aliasCleared(stamp: GatewayTime)
    case held
    /// The device does not have the alias; with `isStale`, the reservation has expired.
    case notHeld(isStale: Bool)
    case tokenTaken
    /// The token's row names another device.
    case tokenHeld(AliasEntry)
    case tooMany
    case tooOften
    case device(DeviceDetail)
    case count(Int)
    case unknown
    /// The store could not be read or accepts no writes; nothing changed, and the caller retries.
    case failed
}

/// A device as shown by the user endpoints.
package struct DeviceDetail: Sendable, Equatable, Codable {
    /// The aliases, at most one per type.
    package var aliases: [AliasName]
    package var tags: [TagName]
    package var badge: Int32
    package var isBlacklisted: Bool
    package var isConnected: Bool
    package var isReachable: Bool
    package var pushModeOff: Bool
    package var registeredAt: GatewayTime
    package var lastSeenAt: GatewayTime
    package var sessionCount: UInt64
    /// The usable alert token in full and its topic; empty without one.
    package var token: String
    package var topic: String
    /// The platform of that token's vendor; `nil` without a token.
    package var platform: VendorPlatform?
    /// The attributes from the device's last Hello that had any; `nil` without them.
    package var attributes: DeviceAttributes?

    package init(
        aliases: [AliasName] = [], tags: [TagName] = [], badge: Int32 = 0, isBlacklisted: Bool = false,
        isConnected: Bool = false, isReachable: Bool = false, pushModeOff: Bool = false, registeredAt: GatewayTime = 0,
        lastSeenAt: GatewayTime = 0, sessionCount: UInt64 = 0, token: String = "", topic: String = "",
        platform: VendorPlatform? = nil, attributes: DeviceAttributes? = nil
    ) {
        (self.aliases, self.tags, self.badge, self.isBlacklisted) = (aliases, tags, badge, isBlacklisted)
        (self.isConnected, self.isReachable, self.pushModeOff) = (isConnected, isReachable, pushModeOff)
        (self.registeredAt, self.lastSeenAt, self.sessionCount) = (registeredAt, lastSeenAt, sessionCount)
        (self.token, self.topic, self.platform, self.attributes) = (token, topic, platform, attributes)
    }

    /// Returns the alias of a type; 0: the alias without a type.
    package func alias(ofType type: UInt64 = 0) -> AliasName? { aliases.first { $0.type == type } }
}

/// The name of a device's token, and the time at which the device registered it.
package struct TokenStamp: Sendable, Equatable {
    package var name: AliasName
    package var stamp: GatewayTime
    package init(name: AliasName, stamp: GatewayTime) { (self.name, self.stamp) = (name, stamp) }
}

/// A durable change of a device's tokens, which the tokens' rows must follow.
package struct TokenNews: Sendable, Equatable {
    package var app: AppKey
    package var cid: DeviceID
    package var bucket: Bucket
    /// The registered tokens whose rows are not known to name this device.
    package var claims: [TokenStamp]
    /// The tokens that the device no longer has.
    package var releases: [TokenStamp]
    package init(app: AppKey, cid: DeviceID, bucket: Bucket, claims: [TokenStamp], releases: [TokenStamp]) {
        (self.app, self.cid, self.bucket, self.claims, self.releases) = (app, cid, bucket, claims, releases)
    }

    /// Returns the device's entry for the row of one of its tokens.
    package func entry(_ token: TokenStamp) -> AliasEntry { AliasEntry(cid: cid, bucket: bucket, stamp: token.stamp) }
}
