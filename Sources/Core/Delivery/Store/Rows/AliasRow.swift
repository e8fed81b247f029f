internal import Wire

/// The devices that may have an alias.
///
/// The row is only an index: the device's own row decides whether the device has the alias.
struct AliasRow: Equatable {
    static let version: UInt8 = 1

    var app: AppKey
    var text: String
    var entries: [AliasEntry] = []

    init(app: AppKey, text: String) { (self.app, self.text) = (app, text) }

    static func key(_ name: AliasName) -> StoreKey {
        StoreKey(name.bucket, .alias, ownerHigh: name.high, ownerLow: name.low)
    }

    var byteCount: Int { 1 + 8 + RowWriter.byteCount(text: text) + 2 + entries.count * 26 }

    func write(into bytes: UnsafeMutableRawBufferPointer) {
        var writer = unsafe RowWriter(bytes)
        writer.put(Self.version)
        writer.put(app.word)
        writer.put(text: text)
        writer.put(UInt16(truncatingIfNeeded: entries.count))
        for entry in entries {
            writer.put(entry.cid.high)
            writer.put(entry.cid.low)
            writer.put(entry.bucket.index)
            writer.put(entry.stamp)
        }
    }

    /// - Returns: `nil` unless the bytes are an alias row of a known version.
    init?(_ bytes: UnsafeRawBufferPointer) {
        var reader = unsafe RowReader(bytes)
        guard reader.next(UInt8.self) == Self.version, let app = reader.next(UInt64.self),
            let text = reader.nextText(), let count = reader.next(UInt16.self)
        else { return nil }
        self.init(app: AppKey(app), text: text)
        for _ in 0..<count {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
                let index = reader.next(UInt16.self), let bucket = Bucket(exactly: UInt64(index)),
                let stamp = reader.next(Int64.self)
            else { return nil }
            entries.append(AliasEntry(cid: DeviceID(high: high, low: low), bucket: bucket, stamp: stamp))
        }
    }
}
