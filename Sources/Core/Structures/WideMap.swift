/// A hash table from a 128-bit key to a number in one flat buffer, with open addressing, linear probing and no tombstones.
public struct WideMap: ~Copyable {
    private struct Place {
        var high: UInt64
        var low: UInt64
        var value: UInt32
    }

    private var places: UnsafeMutablePointer<Place>
    private var mask: Int

    public private(set) var count = 0

    /// A random secret; keys may derive from peers' input: without a secret, colliding keys would make each lookup linear.
    private let seed: (UInt64, UInt64)

    /// - Parameters:
    ///   - capacity: the number of keys that fit before the table grows.
    ///   - seed: random, or fixed in tests.
    public init(capacity: Int = 64, seed: (UInt64, UInt64) = (.random(in: 0...(.max)), .random(in: 0...(.max)))) {
        self.seed = seed
        var rounded = 16
        while rounded * 3 < capacity * 4 { rounded *= 2 }
        mask = rounded - 1
        places = .allocate(capacity: rounded)
        places.initialize(repeating: Place(high: 0, low: 0, value: .max), count: rounded)
    }

    deinit { places.deallocate() }

    public subscript(high: UInt64, low: UInt64) -> UInt32? {
        var index = home(high, low)
        while places[index].value != .max {
            if places[index].low == low, places[index].high == high { return places[index].value }
            index = (index + 1) & mask
        }
        return nil
    }

    /// Inserts or replaces a value; `UInt32.max` is reserved for empty entries.
    public mutating func set(_ high: UInt64, _ low: UInt64, _ value: UInt32) {
        precondition(value != .max, "reserved for empty places")
        if (count + 1) * 4 > (mask + 1) * 3 { grow() }
        var index = home(high, low)
        while places[index].value != .max {
            if places[index].low == low, places[index].high == high {
                places[index].value = value
                return
            }
            index = (index + 1) & mask
        }
        places[index] = Place(high: high, low: low, value: value)
        count += 1
    }

    @discardableResult
    public mutating func remove(_ high: UInt64, _ low: UInt64) -> UInt32? {
        var index = home(high, low)
        while places[index].low != low || places[index].high != high || places[index].value == .max {
            if places[index].value == .max { return nil }
            index = (index + 1) & mask
        }
        let value = places[index].value
        // Later entries of the run move into the gap if their home position allows it.
        var gap = index
        var next = (index + 1) & mask
        while places[next].value != .max {
            let wanted = home(places[next].high, places[next].low)
            if (next - wanted) & mask >= (next - gap) & mask {
                places[gap] = places[next]
                gap = next
            }
            next = (next + 1) & mask
        }
        places[gap].value = .max
        count -= 1
        return value
    }

    private func home(_ high: UInt64, _ low: UInt64) -> Int {
        var mixed = (low ^ seed.0) &* 0x9E37_79B9_7F4A_7C15
        mixed = (mixed ^ mixed >> 32 ^ high ^ seed.1) &* 0xD6E8_FEB8_6659_FD93
        return Int(truncatingIfNeeded: mixed ^ mixed >> 32) & mask
    }

    private mutating func grow() {
        let old = places
        let oldCount = mask + 1
        mask = oldCount * 2 - 1
        places = .allocate(capacity: oldCount * 2)
        places.initialize(repeating: Place(high: 0, low: 0, value: .max), count: oldCount * 2)
        for position in 0..<oldCount where old[position].value != .max {
            var index = home(old[position].high, old[position].low)
            while places[index].value != .max { index = (index + 1) & mask }
            places[index] = old[position]
        }
        old.deallocate()
    }
}
