// The index of a shard's rows in the journal. It has slots in pages that never move, and a hash table from keys to slots. In
// tables with items, each partition (bucket, table and owner) has a list of its slots in item order. Two lists order all slots by
// age for the spiller.
//
// A slot is *live* or *deleted*. A deleted slot records a deletion while the disk may still have the row. A slot is freed once
// the row or deletion is in the ordered store, or when a row that was never there is deleted.

internal import Delivery
internal import Wire

/// The index that means no slot or no partition.
let noSlot = UInt32.max

/// One young row, or the record of its deletion.
struct YoungSlot {
    var ownerHigh: UInt64
    var ownerLow: UInt64
    var item: UInt64
    var wakeAt: Int64
    /// The known alarm of the key in the ordered store; 0 for none.
    var coldAlarm: Int64
    var ticket: UInt64
    var block: UInt32
    var offset: UInt32
    var byteCount: UInt32
    /// A counter of the slot's changes, including its reuse.
    var version: UInt32
    var ageBefore: UInt32
    var ageAfter: UInt32
    var itemBefore: UInt32
    var itemAfter: UInt32
    var partition: UInt32
    var bucket: UInt16
    var table: UInt8
    var isDeleted: Bool
    var mayBeCold: Bool
    /// Whether the row was lent to the spiller and is therefore not in an age list.
    var isCollected: Bool
    var isNew: Bool

    /// Whether rows of the table are rewritten often: devices and counters.
    var isRewritten: Bool {
        table == StoreKey.Table.device.rawValue || table == StoreKey.Table.counters.rawValue
    }

    var key: StoreKey {
        StoreKey(
            Bucket(bucket), StoreKey.Table(rawValue: table) ?? .meta, ownerHigh: ownerHigh, ownerLow: ownerLow,
            item: item)
    }
}

private struct Partition {
    var ownerHigh: UInt64
    var ownerLow: UInt64
    var first: UInt32
    var last: UInt32  // while free: the next free partition
    /// The slot of the last insertion or its neighbor: the start of the next search.
    var hand: UInt32
    var bucket: UInt16
    var table: UInt8
}

private struct AgeList {
    var oldest = noSlot
    var youngest = noSlot
}

struct YoungIndex: ~Copyable {
    private static let pageShift: UInt32 = 11
    private static let pageSize = 1 << 11

    /// A page of slots that never move; a page without used slots has no memory.
    private struct Page {
        var slots: UnsafeMutablePointer<YoungSlot>?
        var free = noSlot
        var usedCount = 0
        /// The next page with free slots; `noSlot` ends the list.
        var nextOpen = noSlot
        var isOpen = false
    }

    private var pages: [Page] = []
    private var openPage = noSlot
    private var freePages: [UInt32] = []
    private var firstVersion: UInt32 = 0
    private var partitionPages: [UnsafeMutablePointer<Partition>] = []
    private var freePartition = noSlot
    private var slotTable = OpenTable()
    private var partitionTable = OpenTable()
    /// Two age lists: one for rows that are rewritten often (devices, counters), and one for all others.
    ///
    /// Moving a row to the end of its list accesses both neighbors. In a separate list, the neighbors of a rewritten row were
    /// also written recently, so they are in the CPU's cache.
    private var rewritten = AgeList()
    private var others = AgeList()
    private(set) var slotCount = 0
    /// A secret hash seed: owners may derive from a peer's bytes, and a peer must not be able to choose colliding keys.
    private let seed = UInt64.random(in: 0...(.max))

    init() {}

    deinit {
        for page in pages { page.slots?.deallocate() }
        for page in partitionPages { page.deallocate() }
    }

    @inline(__always) subscript(slot: UInt32) -> UnsafeMutablePointer<YoungSlot> {
        pages[Int(slot >> Self.pageShift)].slots.unsafelyUnwrapped + Int(slot & UInt32(Self.pageSize - 1))
    }

    @inline(__always) private func partition(_ index: UInt32) -> UnsafeMutablePointer<Partition> {
        partitionPages[Int(index >> Self.pageShift)] + Int(index & UInt32(Self.pageSize - 1))
    }

    // MARK: Finding

    @inline(__always) private static func mix(_ word: UInt64) -> UInt64 {
        var word = word
        word ^= word >> 32
        word = word &* 0xD6E8_FEB8_6659_FD93
        return word ^ word >> 29
    }

    @inline(__always) private func partitionHash(_ key: StoreKey) -> UInt64 {
        let place = UInt64(key.table.rawValue) << 16 | UInt64(key.bucket.index)
        return Self.mix(
            seed ^ key.ownerLow &* 0x9E37_79B9_7F4A_7C15 ^ key.ownerHigh &* 0xC2B2_AE3D_27D4_EB4F
                ^ place &* 0xFF51_AFD7_ED55_8CCD)
    }

    @inline(__always) private static func slotHash(_ key: StoreKey, _ partitionHash: UInt64) -> UInt64 {
        key.item == 0 ? partitionHash : mix(partitionHash ^ key.item &* 0x1656_67B1_9E37_79F9)
    }

    @inline(__always) private func find(_ key: StoreKey, _ hash: UInt64) -> UInt32? {
        slotTable.find(hash) { slot in
            let candidate = self[slot]
            return candidate.pointee.ownerLow == key.ownerLow && candidate.pointee.item == key.item
                && candidate.pointee.ownerHigh == key.ownerHigh && candidate.pointee.bucket == key.bucket.index
                && candidate.pointee.table == key.table.rawValue
        }
    }

    func find(_ key: StoreKey) -> UInt32? { find(key, Self.slotHash(key, partitionHash(key))) }

    /// Returns the slot of a key; creates one with `isNew` if there is none.
    mutating func findOrInsert(_ key: StoreKey) -> UInt32 {
        let ofPartition = partitionHash(key)
        let hash = Self.slotHash(key, ofPartition)
        if let found = find(key, hash) { return found }
        let index = takeSlot()
        let slot = self[index]
        let version = slot.pointee.version
        slot.pointee = YoungSlot(
            ownerHigh: key.ownerHigh, ownerLow: key.ownerLow, item: key.item, wakeAt: 0, coldAlarm: 0, ticket: 0,
            block: 0, offset: 0, byteCount: 0, version: version, ageBefore: noSlot, ageAfter: noSlot,
            itemBefore: noSlot, itemAfter: noSlot, partition: noSlot, bucket: key.bucket.index,
            table: key.table.rawValue, isDeleted: true, mayBeCold: false, isCollected: false, isNew: true)
        slotTable.insert(hash, index)
        if key.hasItems { link(index, ofPartition, key) }
        slotCount += 1
        return index
    }

    mutating func remove(_ index: UInt32) {
        let slot = self[index]
        unlinkAge(index)
        let key = slot.pointee.key
        let ofPartition = partitionHash(key)
        if slot.pointee.partition != noSlot { unlink(index, ofPartition) }
        slotTable.remove(Self.slotHash(key, ofPartition), index)
        slot.pointee.version &+= 1
        putSlot(index)
        slotCount -= 1
    }

    private mutating func takeSlot() -> UInt32 {
        if openPage == noSlot { openPage = takePage() }
        let page = Int(openPage)
        let index = pages[page].free
        let slot = self[index]
        pages[page].free = slot.pointee.ageAfter
        pages[page].usedCount += 1
        if pages[page].free == noSlot {
            openPage = pages[page].nextOpen
            pages[page].isOpen = false
        }
        return index
    }

    private mutating func putSlot(_ index: UInt32) {
        let page = Int(index >> Self.pageShift)
        self[index].pointee.ageAfter = pages[page].free
        pages[page].free = index
        pages[page].usedCount -= 1
        if !pages[page].isOpen {
            pages[page].isOpen = true
            pages[page].nextOpen = openPage
            openPage = UInt32(page)
        }
        // Keep the first open page, so that steady work allocates no memory.
        if pages[page].usedCount == 0, openPage != UInt32(page) { releasePage(page) }
    }

    private mutating func takePage() -> UInt32 {
        let slots = UnsafeMutablePointer<YoungSlot>.allocate(capacity: Self.pageSize)
        UnsafeMutableRawPointer(slots).initializeMemory(
            as: UInt8.self, repeating: 0, count: Self.pageSize * MemoryLayout<YoungSlot>.stride)
        let page: Int
        if let number = freePages.popLast() {
            page = Int(number)
        } else {
            page = pages.count
            pages.append(Page())
        }
        let first = UInt32(page) << Self.pageShift
        for offset in 0..<Self.pageSize {
            slots[offset].ageAfter = offset + 1 < Self.pageSize ? first + UInt32(offset) + 1 : noSlot
            slots[offset].version = firstVersion
        }
        // Versions start higher for each page, so that a reused page number never repeats a slot's version.
        firstVersion &+= 1_000_003
        pages[page] = Page(slots: slots, free: first, usedCount: 0, nextOpen: openPage, isOpen: true)
        return UInt32(page)
    }

    /// Frees an empty page; after a burst of registrations nearly all pages become empty.
    private mutating func releasePage(_ page: Int) {
        var previous = openPage
        while pages[Int(previous)].nextOpen != UInt32(page) { previous = pages[Int(previous)].nextOpen }
        pages[Int(previous)].nextOpen = pages[page].nextOpen
        pages[page].slots?.deallocate()
        pages[page] = Page()
        freePages.append(UInt32(page))
    }

    // MARK: Age

    /// Returns a row whose last change is not after `ticket`; `noSlot` if all rows are younger.
    func oldest(upTo ticket: UInt64) -> UInt32 {
        if others.oldest != noSlot, self[others.oldest].pointee.ticket <= ticket { return others.oldest }
        if rewritten.oldest != noSlot, self[rewritten.oldest].pointee.ticket <= ticket { return rewritten.oldest }
        return noSlot
    }

    /// Moves a slot to the young end of its age list.
    mutating func touch(_ index: UInt32) {
        let isRewritten = self[index].pointee.isRewritten
        var list = isRewritten ? rewritten : others
        touch(index, in: &list)
        if isRewritten { rewritten = list } else { others = list }
    }

    mutating func unlinkAge(_ index: UInt32) {
        let isRewritten = self[index].pointee.isRewritten
        var list = isRewritten ? rewritten : others
        unlinkAge(index, in: &list)
        if isRewritten { rewritten = list } else { others = list }
    }

    @inline(__always) private func touch(_ index: UInt32, in list: inout AgeList) {
        if list.youngest == index { return }
        unlinkAge(index, in: &list)
        let slot = self[index]
        slot.pointee.ageBefore = list.youngest
        slot.pointee.ageAfter = noSlot
        if list.youngest == noSlot { list.oldest = index } else { self[list.youngest].pointee.ageAfter = index }
        list.youngest = index
    }

    @inline(__always) private func unlinkAge(_ index: UInt32, in list: inout AgeList) {
        let slot = self[index]
        let (before, after) = (slot.pointee.ageBefore, slot.pointee.ageAfter)
        if before != noSlot {
            self[before].pointee.ageAfter = after
        } else if list.oldest == index {
            list.oldest = after
        } else {
            return  // not in the list
        }
        if after != noSlot { self[after].pointee.ageBefore = before } else { list.youngest = before }
        slot.pointee.ageBefore = noSlot
        slot.pointee.ageAfter = noSlot
    }

    // MARK: Partitions

    /// Returns the first slot of the key's owner with an item at or after `key.item`, including deleted slots.
    func firstSlot(from key: StoreKey) -> UInt32 {
        guard key.hasItems else { return find(key) ?? noSlot }
        guard let found = findPartition(key, partitionHash(key)) else { return noSlot }
        let first = partition(found).pointee.first
        guard key.item > 0, self[first].pointee.item < key.item else { return first }
        if let exact = find(key) { return exact }
        return self[place(of: key.item, in: partition(found))].pointee.itemAfter
    }

    private func findPartition(_ key: StoreKey, _ hash: UInt64) -> UInt32? {
        partitionTable.find(hash) { index in
            let candidate = partition(index)
            return candidate.pointee.ownerLow == key.ownerLow && candidate.pointee.ownerHigh == key.ownerHigh
                && candidate.pointee.bucket == key.bucket.index && candidate.pointee.table == key.table.rawValue
        }
    }

    /// Inserts a slot into its partition's list.
    ///
    /// Sequence numbers grow, so the place is nearly always the end. If messages end in order, their deletions are inserted in
    /// front of many rows. Each search therefore starts at the previous insertion (`hand`).
    private mutating func link(_ index: UInt32, _ hash: UInt64, _ key: StoreKey) {
        let slot = self[index]
        guard let found = findPartition(key, hash) else {
            let made = takePartition()
            partition(made).pointee = Partition(
                ownerHigh: key.ownerHigh, ownerLow: key.ownerLow, first: index, last: index, hand: index,
                bucket: key.bucket.index, table: key.table.rawValue)
            partitionTable.insert(hash, made)
            slot.pointee.partition = made
            return
        }
        slot.pointee.partition = found
        let before = place(of: key.item, in: partition(found))
        let after = before == noSlot ? partition(found).pointee.first : self[before].pointee.itemAfter
        partition(found).pointee.hand = index
        slot.pointee.itemBefore = before
        slot.pointee.itemAfter = after
        if before == noSlot { partition(found).pointee.first = index } else { self[before].pointee.itemAfter = index }
        if after == noSlot { partition(found).pointee.last = index } else { self[after].pointee.itemBefore = index }
    }

    /// Returns the slot behind which an item belongs; `noSlot` for the front.
    private func place(of item: UInt64, in partition: UnsafePointer<Partition>) -> UInt32 {
        let last = partition.pointee.last
        guard self[last].pointee.item > item else { return last }
        var before = partition.pointee.hand
        if self[before].pointee.item <= item {
            // The loop ends before the last slot, whose item is greater.
            var next = self[before].pointee.itemAfter
            while self[next].pointee.item <= item { (before, next) = (next, self[next].pointee.itemAfter) }
            return before
        }
        while before != noSlot, self[before].pointee.item > item { before = self[before].pointee.itemBefore }
        return before
    }

    private mutating func unlink(_ index: UInt32, _ hash: UInt64) {
        let slot = self[index]
        let place = slot.pointee.partition
        let (before, after) = (slot.pointee.itemBefore, slot.pointee.itemAfter)
        if partition(place).pointee.hand == index { partition(place).pointee.hand = before == noSlot ? after : before }
        if before == noSlot { partition(place).pointee.first = after } else { self[before].pointee.itemAfter = after }
        if after == noSlot { partition(place).pointee.last = before } else { self[after].pointee.itemBefore = before }
        if partition(place).pointee.first == noSlot {
            partitionTable.remove(hash, place)
            partition(place).pointee.last = freePartition
            freePartition = place
        }
    }

    private mutating func takePartition() -> UInt32 {
        if freePartition == noSlot {
            let page = UnsafeMutablePointer<Partition>.allocate(capacity: Self.pageSize)
            let first = UInt32(partitionPages.count) << Self.pageShift
            partitionPages.append(page)
            UnsafeMutableRawPointer(page).initializeMemory(
                as: UInt8.self, repeating: 0, count: Self.pageSize * MemoryLayout<Partition>.stride)
            for offset in stride(from: Self.pageSize - 1, through: 0, by: -1) {
                page[offset].last = freePartition
                freePartition = first + UInt32(offset)
            }
        }
        let index = freePartition
        freePartition = partition(index).pointee.last
        return index
    }
}
