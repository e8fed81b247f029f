internal import Delivery
internal import Wire

/// The unanswered questions of one link.
///
/// Each question gets exactly one answer: a question without a reply is answered as busy when the link breaks. A second answer
/// matches no question and is dropped.
struct LinkQuestions {
    private var publishes = AskedPublishes()
    /// The questions by origin, without this gateway's number; no two questions share an origin.
    private var rare: [Origin: LinkCodec.Question] = [:]

    var count: Int { publishes.count + rare.count }

    mutating func add(_ asked: LinkCodec.AskedPublish, number: UInt32, part: Int) {
        var asked = asked
        asked.origin = asked.origin.asked(by: 0)
        publishes.insert(asked, number: number, part: part)
    }

    mutating func add(_ question: LinkCodec.Question) { rare[question.origin.asked(by: 0)] = question }

    /// Removes the publish to which an answer belongs; returns false if none matches.
    mutating func take(_ origin: Origin, _ cid: DeviceID) -> Bool { publishes.remove(origin.asked(by: 0), cid) }

    /// Removes and returns the question to which an `answer` frame belongs; `nil` if none matches.
    ///
    /// The answer's route contains this gateway's number, but the question's route did not.
    mutating func take(_ origin: Origin) -> LinkCodec.Question? { rare.removeValue(forKey: origin.asked(by: 0)) }

    /// Removes the questions of a frame, of a partition, or all; returns their busy answers.
    mutating func takeBusy(number: UInt32? = nil, part: Int? = nil) -> [LoopAnswer] {
        var answers = publishes.removeAll(number: number, part: part).map(\.busy)
        for (origin, question) in rare {
            guard (number ?? question.number) == question.number, (part ?? question.part) == question.part else {
                continue
            }
            rare[origin] = nil
            answers.append(.answered(question.origin, nil))
        }
        return answers
    }

    mutating func trim() { publishes.trim() }
}

/// The publishes in flight over a link, by origin and device, in an open-addressing hash table because this path is hot.
private struct AskedPublishes {
    private struct Entry {
        var asked: LinkCodec.AskedPublish
        var number: UInt32
        var part: UInt16
        var isTaken: Bool

        static let free = Entry(
            asked: LinkCodec.AskedPublish(origin: .none, cid: .none, task: .none), number: 0, part: 0, isTaken: false)
    }

    private static let smallest = 1 << 10
    private var entries = ContiguousArray(repeating: Entry.free, count: AskedPublishes.smallest)
    private(set) var count = 0
    /// A random seed, so that a sender cannot choose request numbers that collide.
    private let seed = UInt64.random(in: .min ... .max)

    private var mask: Int { entries.count - 1 }

    private func home(_ origin: Origin, _ cid: DeviceID) -> Int {
        var hash = (origin.request ^ seed) &* 0x9E37_79B9_7F4A_7C15
        hash = (hash ^ hash >> 32 ^ origin.route ^ cid.low) &* 0xD6E8_FEB8_6659_FD93
        return Int(truncatingIfNeeded: hash >> 32) & mask
    }

    /// Inserts a publish; duplicates are allowed because a sender may reuse a request number.
    mutating func insert(_ asked: LinkCodec.AskedPublish, number: UInt32, part: Int) {
        if count >= entries.count / 2 { resize(to: entries.count * 2) }
        put(Entry(asked: asked, number: number, part: UInt16(truncatingIfNeeded: part), isTaken: true))
        count += 1
    }

    private mutating func put(_ entry: Entry) {
        var place = home(entry.asked.origin, entry.asked.cid)
        while entries[place].isTaken { place = (place + 1) & mask }
        entries[place] = entry
    }

    private mutating func resize(to size: Int) {
        var old = ContiguousArray(repeating: Entry.free, count: size)
        swap(&old, &entries)
        for entry in old where entry.isTaken { put(entry) }
    }

    mutating func remove(_ origin: Origin, _ cid: DeviceID) -> Bool {
        var place = home(origin, cid)
        while entries[place].isTaken {
            if entries[place].asked.origin == origin, entries[place].asked.cid == cid {
                free(place)
                return true
            }
            place = (place + 1) & mask
        }
        return false
    }

    /// Frees a slot and moves later entries of the probe sequence up, so that no lookup ends too early.
    private mutating func free(_ first: Int) {
        count -= 1
        var (hole, next) = (first, first)
        while true {
            next = (next + 1) & mask
            guard entries[next].isTaken else { break }
            let home = home(entries[next].asked.origin, entries[next].asked.cid)
            // An entry may move unless its home slot lies between the hole and its current slot.
            let isBetween = hole <= next ? hole < home && home <= next : hole < home || home <= next
            guard !isBetween else { continue }
            entries[hole] = entries[next]
            hole = next
        }
        entries[hole] = .free
    }

    mutating func removeAll(number: UInt32?, part: Int?) -> [LinkCodec.AskedPublish] {
        guard count > 0 else { return [] }
        var removed: [LinkCodec.AskedPublish] = []
        var kept: [Entry] = []
        for entry in entries where entry.isTaken {
            if (number ?? entry.number) == entry.number, (part ?? Int(entry.part)) == Int(entry.part) {
                removed.append(entry.asked)
            } else {
                kept.append(entry)
            }
        }
        guard !removed.isEmpty else { return [] }
        entries = ContiguousArray(repeating: .free, count: entries.count)
        for entry in kept { put(entry) }
        count = kept.count
        return removed
    }

    mutating func trim() {
        guard entries.count > Self.smallest, count < entries.count / 16 else { return }
        resize(to: max(Self.smallest, entries.count / 4))
    }
}
