// Which device has a vendor token: the one that registered it last. A token stands for one app on one phone, and a phone
// whose app is installed again registers under another cid. docs/build/Directory.md, "Owners of tokens", gives the order of
// steps.

internal import Structures
internal import Wire

extension Shard {
    // MARK: The device's side

    /// The claims and releases that follow from a change of a device's tokens; `nil` if there are none.
    ///
    /// A device claims only tokens that its client named in this frame. Another device may own the others of its record.
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

    /// Has the gateway carry the news out once everything written so far is durable.
    mutating func tell(_ news: TokenNews?) {
        guard let news else { return }
        whenDurable(.told(.tokens(news)))
    }

    /// Each token's name, once, with the time at which the device registered it last.
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
    /// Due jobs of this device find no such token; a lease that was given stays valid.
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

    /// The device need not claim the token again.
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

    /// Why the device has no token: another device registered it.
    func hasLostToken(_ slot: DeviceSlot) -> Bool { devices.at(slot).value.hasLostToken }
}

extension DeviceToken {
    /// True for what the vendor gave once: a token has one owner, whatever it is registered for.
    fileprivate func isOneToken(with other: DeviceToken) -> Bool {
        channel == other.channel && kind == other.kind
            && (token == other.token || token.lowercased() == other.token.lowercased())
    }
}
