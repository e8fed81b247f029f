internal import Structures
package import Wire

extension Shard {
    /// Records the attributes of a Hello in the device's profile.
    ///
    /// - Returns: the change, or `nil` if the attributes are unchanged; `writeAttributes` writes the change in the Welcome's
    ///   batch.
    mutating func takeAttributes(_ hello: Hello, _ slot: DeviceSlot) -> AttributesChange? {
        if !hello.droppedAttributes.isEmpty {
            let names = hello.droppedAttributes.joined(separator: ", ")
            log(.warning, "attributeDropped", "device \(devices.at(slot).value.cid): too long or malformed: \(names)")
        }
        guard let attributes = hello.attributes else { return nil }
        var profile = profile(slot)
        let mark = attributes.isEmpty ? nil : AttributesMark(attributes)
        guard mark != profile.attributes else { return nil }
        let change = AttributesChange(attributes: attributes, former: profile.attributes?.platform)
        profile.attributes = mark
        devices.changeProfile(slot, to: profile)
        return change
    }

    /// Writes the changed attributes and the row of the platform's tag, in the open batch.
    func writeAttributes(_ change: AttributesChange, _ slot: DeviceSlot) {
        let device = devices.at(slot)
        let key = AttributesRow.key(device.value.cid, in: device.value.bucket)
        if change.attributes.isEmpty {
            store.delete(key, prior: .maybe(wakeAt: 0))
        } else {
            let byteCount = AttributesRow.byteCount(change.attributes)
            store.putRow(key, wakeAt: 0, prior: .maybe(wakeAt: 0), byteCount: byteCount) {
                AttributesRow.write(change.attributes, into: $0)
            }
        }
        let (old, new) = (change.former?.tag, change.attributes.platform.tag)
        guard old != new else { return }
        if let old { store.delete(tagKey(device, old.digest), prior: .maybe(wakeAt: 0)) }
        if let new { writeTag(device, new.digest) }
    }

    /// Reads the device's attributes; `nil` if it has none, or if their row is missing or damaged.
    ///
    /// After a missing or damaged row, the device's next Hello writes the row again.
    mutating func readAttributes(
        _ slot: DeviceSlot, completion: @escaping (inout Shard, Found<DeviceAttributes?>) -> Void
    ) {
        guard let mark = profile(slot).attributes else { return completion(&self, .found(nil)) }
        let (cid, bucket) = (devices.at(slot).value.cid, devices.at(slot).value.bucket)
        let key = AttributesRow.key(cid, in: bucket)
        lookUp(key) { shard, found in
            switch found {
            case .found(let row):
                let attributes = AttributesRow.read(row.bytes)
                if attributes == nil { shard.lostAttributes(mark, of: cid, key) }
                completion(&shard, .found(attributes))
            case .absent:
                shard.lostAttributes(mark, of: cid, key)
                completion(&shard, .found(nil))
            case .unreadable: completion(&shard, .unreadable)
            }
        }
    }

    /// Reports a missing or damaged row, unless the device was removed or its attributes changed during the read.
    private mutating func lostAttributes(_ mark: AttributesMark, of cid: DeviceID, _ key: StoreKey) {
        guard mark.digest != AttributesMark.unknownDigest, let slot = knownDevice(cid), profile(slot).attributes == mark
        else { return }
        damaged(key)
        guard store.acceptsWrites else { return }
        var profile = profile(slot)
        profile.attributes?.digest = AttributesMark.unknownDigest
        save(profile, slot)
    }
}

/// The attributes to write, and the platform of the device's previous attributes.
struct AttributesChange {
    var attributes: DeviceAttributes
    var former: DeviceAttributes.Platform?
}

extension DeviceAttributes.Platform {
    /// The reserved tag of the platform's devices.
    ///
    /// `nil` for iOS, and for unknown platforms, which count as iOS: conditions find these devices by the absence of platform
    /// tags.
    package var tag: TagName? {
        switch self {
        case .unknown, .ios: nil
        case .android, .harmony, .web, .miniProgram, .other: TagName(digest: UInt64(rawValue), text: name)
        }
    }

    package var name: String {
        switch self {
        case .unknown: "unknown"
        case .android: "android"
        case .ios: "ios"
        case .harmony: "harmony"
        case .web: "web"
        case .miniProgram: "miniprogram"
        case .other: "other"
        }
    }
}

extension DeviceProfile {
    /// The tags that conditions are matched against: the device's own tags, and its platform's reserved tag.
    var conditionTags: [TagName] {
        guard let tag = attributes?.platform.tag else { return names.tags }
        return names.tags + [tag]
    }
}

extension DeviceDetail {
    /// The tags that conditions are matched against: the device's own tags, and its platform's reserved tag.
    package var conditionTags: [TagName] {
        guard let tag = attributes?.platform.tag else { return tags }
        return tags + [tag]
    }
}
