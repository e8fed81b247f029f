package import Wire

package enum FeedHeadRow {
    static let version: UInt8 = 1
    package static let byteCount = 48

    package static func key(_ feed: FeedName) -> StoreKey { FeedRow.key(feed, 0) }

    package static func write(_ state: FeedState, first: UInt64, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(UInt8(0))
        writer.put(UInt16(0))
        writer.put(UInt32(0))
        writer.put(state.last)
        writer.put(state.acked)
        writer.put(state.count)
        writer.put(state.byteCount)
        writer.put(first)
    }

    package static func read(_ bytes: UnsafeRawBufferPointer) -> (state: FeedState, first: UInt64)? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, reader.next(byteCount: 7) != nil,
            let last = reader.next(UInt64.self), let acked = reader.next(UInt64.self),
            let count = reader.next(UInt64.self), let byteCount = reader.next(UInt64.self),
            let first = reader.next(UInt64.self)
        else { return nil }
        var state = FeedState()
        (state.last, state.acked, state.count, state.byteCount) = (last, acked, count, byteCount)
        return (state, first)
    }
}

/// Feed items that were appended together; the key's item is the number of the last one.
package enum FeedRow {
    static let version: UInt8 = 1
    static let headByteCount = 4
    static let itemByteCount = 1 + 8 + 16 + 16 + 16 + 4 + 4
    /// The size of the length field of a custom callback; the length 0 means that the item awaits its callback.
    ///
    /// Only items with `callbackBit` have the field.
    static let callbackByteCount = 2
    private static let callbackBit: UInt8 = 1 << 7
    /// The size up to which further items are added to a row; a row has at least one item.
    static let targetByteCount = 32 << 10
    static let byteCountLimit = targetByteCount + headByteCount + itemByteCount + MessageBounds.payloadByteCount

    package static func key(_ feed: FeedName, _ number: UInt64) -> StoreKey {
        StoreKey(feed.home, .feed, ownerHigh: feed.app.word, ownerLow: UInt64(feed.kind.rawValue), item: number)
    }

    package static func byteCount(_ item: FeedItem) -> Int {
        itemByteCount + item.payload.count + (hasCallback(item) ? callbackByteCount + item.customCallback.count : 0)
    }

    private static func hasCallback(_ item: FeedItem) -> Bool { item.awaitsCallback || !item.customCallback.isEmpty }

    package static func byteCount(_ items: ArraySlice<FeedItem>) -> Int {
        items.reduce(headByteCount) { $0 + byteCount($1) }
    }

    package static func write(_ items: ArraySlice<FeedItem>, into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(version)
        writer.put(UInt8(0))
        writer.put(UInt16(truncatingIfNeeded: items.count))
        for item in items {
            writer.put(item.kind.rawValue | (hasCallback(item) ? callbackBit : 0))
            writer.put(item.at)
            writer.put(item.cid.high)
            writer.put(item.cid.low)
            writer.put(item.message.high)
            writer.put(item.message.low)
            writer.put(item.task.high)
            writer.put(item.task.low)
            writer.put(item.request)
            writer.put(UInt32(truncatingIfNeeded: item.payload.count))
            writer.put(item.payload)
            guard hasCallback(item) else { continue }
            writer.put(UInt16(truncatingIfNeeded: item.customCallback.count))
            writer.put(item.customCallback)
        }
    }

    /// - Returns: `nil` unless the bytes are a feed row of a known version.
    package static func read(_ bytes: UnsafeRawBufferPointer) -> [FeedItem]? {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == version, reader.next(UInt8.self) != nil, let count = reader.next(UInt16.self),
            count > 0, Int(count) <= bytes.count / itemByteCount
        else { return nil }
        var items: [FeedItem] = []
        items.reserveCapacity(Int(count))
        for _ in 0..<count {
            guard let form = reader.next(UInt8.self), let kind = FeedItem.Kind(rawValue: form & ~callbackBit),
                let at = reader.next(Int64.self),
                let cid = reader.nextIdentifier(DeviceID.self), let message = reader.nextIdentifier(MessageID.self),
                let task = reader.nextIdentifier(TaskID.self), let request = reader.next(UInt32.self),
                let byteCount = reader.next(UInt32.self), let payload = reader.next(byteCount: Int(byteCount))
            else { return nil }
            var item = FeedItem(kind, at: at, cid: cid)
            (item.message, item.task, item.request, item.payload) = (message, task, request, payload.array)
            if form & callbackBit != 0 {
                guard let count = reader.next(UInt16.self), let text = reader.next(byteCount: Int(count)) else {
                    return nil
                }
                (item.customCallback, item.awaitsCallback) = (text.array, count == 0)
            }
            items.append(item)
        }
        return items
    }

    package static func glance(_ bytes: UnsafeRawBufferPointer) -> (count: Int, at: GatewayTime)? {
        guard let items = unsafe read(bytes), let last = items.last else { return nil }
        return (items.count, last.at)
    }
}

/// The numbers of a device's latest upstream messages, for deduplication.
package struct UpstreamRow {
    static let version: UInt8 = 1
    /// The number of entries that are always remembered.
    static let memory = 64
    static let entryLimit = 256
    static let headByteCount = 12
    static let entryByteCount = 4 + 8 + 8 + 4

    package struct Entry: Equatable {
        var request: UInt32
        /// The digest of the payload and the task.
        var digest: UInt64
        var number: UInt64
        var byteCount: UInt32

        package init(request: UInt32, digest: UInt64, number: UInt64, byteCount: UInt32) {
            (self.request, self.digest, self.number, self.byteCount) = (request, digest, number, byteCount)
        }
    }

    var app: AppKey
    package private(set) var entries: [Entry] = []

    package static func key(_ cid: DeviceID, of app: AppKey) -> StoreKey { StoreKey(app.home, .upstream, cid) }

    package init(app: AppKey) { self.app = app }

    package var byteCount: Int { Self.headByteCount + Self.entryByteCount * entries.count }

    func entry(_ request: UInt32) -> Entry? { entries.last { $0.request == request } }

    /// Adds an entry and removes acked ones beyond the latest 64.
    package mutating func add(_ entry: Entry, acked: UInt64) {
        entries.append(entry)
        while entries.count > Self.memory, entries[0].number <= acked || entries.count > Self.entryLimit {
            entries.removeFirst()
        }
    }

    func unread(beyond acked: UInt64) -> (count: Int, byteCount: Int) {
        entries.reduce(into: (0, 0)) { sum, entry in
            guard entry.number > acked else { return }
            sum.0 += 1
            sum.1 += Int(entry.byteCount)
        }
    }

    package func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(UInt8(0))
        writer.put(UInt16(truncatingIfNeeded: entries.count))
        writer.put(app.word)
        for entry in entries {
            writer.put(entry.request)
            writer.put(entry.digest)
            writer.put(entry.number)
            writer.put(entry.byteCount)
        }
    }

    /// - Returns: `nil` unless the bytes are an upstream row of a known version.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, reader.next(UInt8.self) != nil,
            let count = reader.next(UInt16.self), Int(count) <= Self.entryLimit, let app = reader.next(UInt64.self)
        else { return nil }
        self.app = AppKey(app)
        for _ in 0..<count {
            guard let request = reader.next(UInt32.self), let digest = reader.next(UInt64.self),
                let number = reader.next(UInt64.self), let byteCount = reader.next(UInt32.self)
            else { return nil }
            entries.append(Entry(request: request, digest: digest, number: number, byteCount: byteCount))
        }
    }

    /// FNV-1a, sufficient to distinguish messages of the same device.
    package static func digest(_ message: UpstreamMessage) -> UInt64 {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in message.payload { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
        for word in [message.task.high, message.task.low] { hash = (hash ^ word) &* 0x100_0000_01B3 }
        return hash
    }
}
