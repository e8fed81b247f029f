internal import Wire

/// What a device is called by its app: its alias and its tags, as they stand behind the tokens in its row.
struct DeviceNames: Equatable {
    static let version: UInt8 = 1

    var alias: AliasName?
    /// The stamp of the reservation that the alias was set with.
    var aliasStamp: GatewayTime = 0
    var tags: [TagName] = []
    /// The day (UTC, since 1970) on which the tags were last replaced, and how often on it.
    var replacementDay: UInt32 = 0
    var replacementCount: UInt16 = 0

    init() {}

    var isEmpty: Bool { alias == nil && tags.isEmpty && replacementDay == 0 }

    var byteCount: Int {
        guard !isEmpty else { return 0 }
        let aliasCount = alias.map { 24 + RowWriter.byteCount(text: $0.text) } ?? 0
        return tags.reduce(1 + 1 + aliasCount + 4 + 2 + 2) { $0 + 8 + RowWriter.byteCount(text: $1.text) }
    }

    func write(_ writer: inout RowWriter) {
        guard !isEmpty else { return }
        writer.put(Self.version)
        writer.put(UInt8(alias == nil ? 0 : 1))
        if let alias {
            writer.put(alias.high)
            writer.put(alias.low)
            writer.put(aliasStamp)
            writer.put(text: alias.text)
        }
        writer.put(replacementDay)
        writer.put(replacementCount)
        writer.put(UInt16(truncatingIfNeeded: tags.count))
        for tag in tags {
            writer.put(tag.digest)
            writer.put(text: tag.text)
        }
    }

    /// Reads to the end of the row; nothing there means no names, `nil` bytes that are none.
    init?(_ reader: inout RowReader) {
        if reader.isAtEnd { return }
        guard reader.next(UInt8.self) == Self.version, let hasAlias = reader.next(UInt8.self) else { return nil }
        if hasAlias != 0 {
            guard let high = reader.next(UInt64.self), let low = reader.next(UInt64.self),
                let stamp = reader.next(Int64.self), let text = reader.nextText()
            else { return nil }
            (alias, aliasStamp) = (AliasName(high: high, low: low, text: text), stamp)
        }
        guard let day = reader.next(UInt32.self), let count = reader.next(UInt16.self),
            let tagCount = reader.next(UInt16.self)
        else { return nil }
        (replacementDay, replacementCount) = (day, count)
        for _ in 0..<tagCount {
            guard let digest = reader.next(UInt64.self), let text = reader.nextText() else { return nil }
            tags.append(TagName(digest: digest, text: text))
        }
        guard reader.isAtEnd else { return nil }
    }
}
