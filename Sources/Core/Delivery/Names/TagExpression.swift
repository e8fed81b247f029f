/// A condition on a device's tags: groups that must all hold, each over some tags.
///
/// Only the expression's own tags matter of a device: they are a word with one bit a tag.
package struct TagExpression: Sendable, Equatable {
    package enum Combination: UInt8, Sendable {
        /// The device has every tag of the group.
        case all
        /// It has one of them, at least.
        case any
        /// It has none of them.
        case none
    }

    /// As many as a word has bits, less the one that stands for the roster in a walk.
    package static let tagLimit = 63

    struct Group: Sendable, Equatable {
        var combination: Combination
        var mask: UInt64
    }

    /// Groups that one expression may have: as many as a request may have conditions.
    package static let groupLimit = 100

    /// Without repetitions.
    package private(set) var tags: [TagName] = []
    private(set) var groups: [Group] = []
    /// True when some condition can hold for no device of this gateway.
    package private(set) var isNever = false

    /// True for every device of the app.
    package init() {}

    /// Narrows the expression; false when it would exceed `tagLimit` tags or `groupLimit` groups.
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

    /// Adds a group unless others imply it: a walk checks all of them for each device.
    private mutating func insert(_ group: Group) {
        switch group.combination {
        case .all, .none: merge(group)
        case .any where group.mask.nonzeroBitCount == 1: merge(Group(combination: .all, mask: group.mask))
        case .any:
            // A device that has one of a few tags has one of the many, too.
            let isImplied = groups.contains { $0.combination == .any && $0.mask & ~group.mask == 0 }
            guard !isImplied else { return }
            groups.removeAll { $0.combination == .any && group.mask & ~$0.mask == 0 }
            groups.append(group)
        }
    }

    /// Merges two groups that want all, or none, of their tags into one that wants all, or none, of both.
    private mutating func merge(_ group: Group) {
        if let place = groups.firstIndex(where: { $0.combination == group.combination }) {
            groups[place].mask |= group.mask
        } else {
            groups.append(group)
        }
    }

    /// Adds a condition that does not depend on the device.
    package mutating func add(_ isTrue: Bool) { if !isTrue { isNever = true } }

    /// Whether the expression is true for a device that has these of the expression's tags.
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

    /// Whether it is true for a device with these tags.
    package func isTrue(ofTags owned: [TagName]) -> Bool {
        var present: UInt64 = 0
        for (place, tag) in tags.enumerated() where owned.contains(tag) { present |= 1 << UInt64(place) }
        return isTrue(present)
    }

    /// True when a device with none of the tags satisfies it: the tags' own rows then do not suffice to find all
    /// devices.
    var needsRoster: Bool { isTrue(0) }
}

// The stored form, in a task's row.
extension TagExpression {
    /// The largest expression's size, with tags of `tagByteCount` bytes each.
    static func byteCountLimit(tagByteCount: Int) -> Int {
        4 + 9 * groupLimit + tagLimit * (8 + 1 + min(tagByteCount, 255))
    }

    /// The work of a walk for one device, in steps of a few nanoseconds.
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
