/// A condition on a device's tags: groups that must all hold, each over some tags.
///
/// Of a device only the set of the tags that the expression names matters; it is a word with one bit a tag.
public struct TagExpression: Sendable, Equatable {
    public enum Combination: UInt8, Sendable {
        /// The device has every tag of the group.
        case all
        /// It has one of them, at least.
        case any
        /// It has none of them.
        case none
    }

    /// As many as a word has bits, less the one that stands for the roster in a walk.
    public static let tagLimit = 63

    struct Group: Sendable, Equatable {
        var combination: Combination
        var mask: UInt64
    }

    /// Without repetitions.
    public private(set) var tags: [TagName] = []
    private(set) var groups: [Group] = []
    /// Some condition can hold for no device of this gateway.
    public private(set) var isNever = false

    /// True for every device of the app.
    public init() {}

    /// Narrows the expression; false when it would name more than `tagLimit` tags.
    public mutating func add(_ combination: Combination, _ names: [TagName]) -> Bool {
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
        groups.append(Group(combination: combination, mask: mask))
        return true
    }

    /// Adds a condition that does not depend on the device.
    public mutating func add(_ isTrue: Bool) { if !isTrue { isNever = true } }

    /// Whether the expression is true for a device that has these of the expression's tags.
    public func isTrue(_ present: UInt64) -> Bool {
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
    public func isTrue(ofTags owned: [TagName]) -> Bool {
        var present: UInt64 = 0
        for (place, tag) in tags.enumerated() where owned.contains(tag) { present |= 1 << UInt64(place) }
        return isTrue(present)
    }

    /// A device with none of the tags satisfies it, so the tags' own rows do not suffice to find all who do.
    var needsRoster: Bool { isTrue(0) }
}

// As it stands in a task's row.
extension TagExpression {
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
            groups.append(Group(combination: combination, mask: mask))
        }
    }
}
