package import Wire

/// A condition on a device's tags: groups that must all hold, each over some tags.
///
/// A device is represented by a word with one bit per tag of the expression.
package struct TagExpression: Sendable, Equatable {
    package enum Combination: UInt8, Sendable {
        /// The device has every tag of the group.
        case all
        /// The device has at least one of the tags.
        case any
        /// The device has none of the tags.
        case none
    }

    /// The maximum number of tags: the bits of a word, minus the bit for the roster in a walk.
    package static let tagLimit = 63

    struct Group: Sendable, Equatable {
        var combination: Combination
        var mask: UInt64
    }

    /// The maximum number of groups, equal to the maximum number of conditions in a request.
    package static let groupLimit = 100

    /// The distinct tags of the expression.
    package private(set) var tags: [TagName] = []
    private(set) var groups: [Group] = []
    /// Whether a condition is false for every device.
    package private(set) var isNever = false

    /// Creates an expression that is true for every device of the app.
    package init() {}

    /// Adds a group; returns false if the expression would exceed `tagLimit` tags or `groupLimit` groups.
    package mutating func add(_ combination: Combination, _ names: [TagName]) -> Bool {
        var mask: UInt64 = 0
        for name in names {
            let place: Int
            if let known = tags.firstIndex(of: name) {
                place = known
            } else {
                guard tags.count < Self.tagLimit else { return false }
                place = tags.count
                tags.append(name)
            }
            mask |= 1 << UInt64(place)
        }
        insert(Group(combination: combination, mask: mask))
        return groups.count <= Self.groupLimit
    }

    /// Adds a group unless others imply it; fewer groups make walks faster.
    private mutating func insert(_ group: Group) {
        switch group.combination {
        case .all, .none: merge(group)
        case .any where group.mask.nonzeroBitCount == 1: merge(Group(combination: .all, mask: group.mask))
        case .any:
            // A group over a subset of the tags implies this group.
            let isImplied = groups.contains { $0.combination == .any && $0.mask & ~group.mask == 0 }
            guard !isImplied else { return }
            groups.removeAll { $0.combination == .any && group.mask & ~$0.mask == 0 }
            groups.append(group)
        }
    }

    /// Merges two groups that require all, or none, of their tags.
    private mutating func merge(_ group: Group) {
        if let place = groups.firstIndex(where: { $0.combination == group.combination }) {
            groups[place].mask |= group.mask
        } else {
            groups.append(group)
        }
    }

    /// Adds the condition that the device's platform is one of the given ones; an unknown platform counts as iOS.
    ///
    /// - Returns: false if the expression would exceed its limits.
    package mutating func add(platforms: Set<DeviceAttributes.Platform>) -> Bool {
        let all = DeviceAttributes.Platform.allCases
        if platforms.contains(.ios) {
            let others = all.filter { !platforms.contains($0) }.compactMap(\.tag)
            return others.isEmpty || add(.none, others)
        }
        let tags = all.filter { platforms.contains($0) }.compactMap(\.tag)
        guard !tags.isEmpty else {
            add(false)
            return true
        }
        return add(.any, tags)
    }

    /// Adds a condition that does not depend on the device.
    package mutating func add(_ isTrue: Bool) { if !isTrue { isNever = true } }

    /// Returns whether the expression is true for a device with this set of the expression's tags.
    package func isTrue(_ present: UInt64) -> Bool {
        guard !isNever else { return false }
        return groups.allSatisfy { group in
            switch group.combination {
            case .all: present & group.mask == group.mask
            case .any: present & group.mask != 0
            case .none: present & group.mask == 0
            }
        }
    }

    /// Returns whether the expression is true for a device with these tags.
    package func isTrue(ofTags owned: [TagName]) -> Bool {
        var present: UInt64 = 0
        for (place, tag) in tags.enumerated() where owned.contains(tag) { present |= 1 << UInt64(place) }
        return isTrue(present)
    }

    /// Whether a device without any of the tags satisfies the expression; the tags' own rows then do not find all devices.
    var needsRoster: Bool { isTrue(0) }
}

extension TagExpression {
    /// Returns the size of the largest expression, with `tagByteCount` bytes per tag.
    static func byteCountLimit(tagByteCount: Int) -> Int {
        4 + 9 * groupLimit + tagLimit * (8 + 1 + min(tagByteCount, 255))
    }

    /// The cost of checking one device in a walk, in steps of a few nanoseconds.
    var work: Int { 2 * (tags.count + 1) + groups.count }

    var byteCount: Int { tags.reduce(4 + 9 * groups.count) { $0 + 8 + RowWriter.byteCount(text: $1.text) } }

    func write(_ writer: inout RowWriter) {
        writer.put(UInt8(isNever ? 1 : 0))
        writer.put(UInt8(truncatingIfNeeded: tags.count))
        writer.put(UInt16(truncatingIfNeeded: groups.count))
        for tag in tags {
            writer.put(tag.digest)
            writer.put(text: tag.text)
        }
        for group in groups {
            writer.put(group.combination.rawValue)
            writer.put(group.mask)
        }
    }

    init?(_ reader: inout RowReader) {
        guard let never = reader.next(UInt8.self), let tagCount = reader.next(UInt8.self),
            let groupCount = reader.next(UInt16.self)
        else { return nil }
        isNever = never != 0
        for _ in 0..<tagCount {
            guard let digest = reader.next(UInt64.self), let text = reader.nextText() else { return nil }
            tags.append(TagName(digest: digest, text: text))
        }
        for _ in 0..<groupCount {
            guard let combination = Combination(rawValue: reader.next() ?? .max), let mask = reader.next(UInt64.self)
            else { return nil }
            insert(Group(combination: combination, mask: mask))
        }
    }
}
