// The owner of a vendor token: the device that registered it last. A token identifies one app on one phone, and a reinstalled app
// registers under another cid. docs/build/Directory.md, "Owners of tokens", describes the order of steps.

internal import Structures
internal import Wire

extension Shard {
    // MARK: The device's side

    /// Returns the claims and releases that follow from a change of a device's tokens; `nil` if none.
    ///
    /// A device claims only tokens that its client named in this frame. Another device may own the other tokens of its record.
    func news(
        of slot: DeviceSlot, named: [VendorToken] = [], before: [DeviceToken], after: [DeviceToken]
    ) -> TokenNews? {
        let device = devices.at(slot)
        let claimed = after.filter { token in
            !token.isClaimed && named.contains { $0.channel == token.channel && $0.token == token.token }
        }
        let gone = before.filter { old in !after.contains { $0.isOneToken(with: old) } }
        guard !claimed.isEmpty || !gone.isEmpty else { return nil }
        return TokenNews(
            app: apps[Int(device.value.appIndex)].key, cid: device.value.cid, bucket: device.value.bucket,
            claims: stamps(claimed, slot), releases: stamps(gone, slot))
    }

    /// Passes the change to the gateway after everything written so far is durable.
    mutating func tell(_ news: TokenNews?) {
        guard let news else { return }
        whenDurable(.told(.tokens(news)))
    }

    /// The range in ms of the time between two claims of a token.
    private static let claimPause: ClosedRange<Int64> = 2_000...3_600_000

    /// Returns the time at which a device claims its unconfirmed tokens again; `.max` without one.
    ///
    /// The pause grows with the time since the registration. A further write of the row does not delay the alarm that it has.
    func claimsAt(_ device: Place<Device>) -> GatewayTime {
        guard device.value.flags.contains(.claimsTokens) else { return .max }
        let tokens = DeviceProfile(device.value.profileBytes)?.tokens ?? []
        let registeredAt = tokens.lazy.filter { !$0.isClaimed }.map(\.registeredAt).max() ?? now
        let pause = min(max(now - registeredAt, Self.claimPause.lowerBound), Self.claimPause.upperBound)
        return min(now + pause, device.value.rowWakeAt > now ? device.value.rowWakeAt : .max)
    }

    /// Repeats the claims that are not confirmed, because their steps are in memory only and a crash loses them.
    mutating func claimAgain(_ slot: DeviceSlot) {
        let device = devices.at(slot)
        guard device.value.flags.contains(.claimsTokens) else { return }
        let claims = stamps(profile(slot).tokens.filter { !$0.isClaimed }, slot)
        tell(
            TokenNews(
                app: apps[Int(device.value.appIndex)].key, cid: device.value.cid, bucket: device.value.bucket,
                claims: claims, releases: []))
    }

    /// Returns each token's name once, with the time of its last registration.
    private func stamps(_ tokens: [DeviceToken], _ slot: DeviceSlot) -> [TokenStamp] {
        var stamps: [TokenStamp] = []
        for token in tokens {
            let name = name(of: token, slot)
            if let place = stamps.firstIndex(where: { $0.name == name }) {
                stamps[place].stamp = max(stamps[place].stamp, token.registeredAt)
            } else {
                stamps.append(TokenStamp(name: name, stamp: token.registeredAt))
            }
        }
        return stamps
    }

    private func name(of token: DeviceToken, _ slot: DeviceSlot) -> AliasName {
        let app = apps[Int(devices.at(slot).value.appIndex)].key
        return verifier.tokenName(app: app, channel: token.channel, kind: token.kind, token: token.token)
    }

    /// Removes a token that another device registered.
    ///
    /// Due jobs of this device no longer find the token. An existing lease stays valid.
    mutating func loseToken(_ slot: DeviceSlot, _ name: AliasName, stamp: GatewayTime) -> DirectoryReply {
        var profile = profile(slot)
        let count = profile.tokens.count
        profile.tokens.removeAll { $0.registeredAt <= stamp && self.name(of: $0, slot) == name }
        guard profile.tokens.count < count else { return .done }
        devices.at(slot).change { $0.setTokenMoved(true) }
        save(profile, slot)
        presenceChanged(slot)
        return .done
    }

    /// Marks the token as claimed, so the device does not claim it again.
    mutating func confirmToken(_ slot: DeviceSlot, _ name: AliasName, stamp: GatewayTime) -> DirectoryReply {
        var profile = profile(slot)
        var isChanged = false
        for index in profile.tokens.indices where !profile.tokens[index].isClaimed {
            guard profile.tokens[index].registeredAt <= stamp, self.name(of: profile.tokens[index], slot) == name
            else { continue }
            profile.tokens[index].isClaimed = true
            isChanged = true
        }
        if isChanged {
            save(profile, slot)
        }
        return .done
    }

    func hasLostToken(_ slot: DeviceSlot) -> Bool { devices.at(slot).value.hasLostToken }
}

extension DeviceToken {
    /// Returns whether both are the same token; hex digits of Apple's tokens may be in either case.
    fileprivate func isOneToken(with other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind
            && (token == other.token || channel == .apns && token.lowercased() == other.token.lowercased())
    }
}
