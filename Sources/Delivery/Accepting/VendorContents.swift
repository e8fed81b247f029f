public import Wire

/// A message's contents for vendors, at most one for each channel.
///
/// The first one needs no allocation: most messages have no more.
public struct VendorContents {
    private(set) var first: VendorContent?
    private var others: [VendorContent] = []

    public init(_ content: VendorContent? = nil) { first = content }

    public var isEmpty: Bool { first == nil }

    /// The content for a channel.
    public subscript(channel: VendorChannel) -> VendorContent? {
        if let first, first.channel == channel { return first }
        return others.first { $0.channel == channel }
    }

    /// Adds the content of one more channel.
    public mutating func add(_ content: VendorContent) {
        if first == nil { first = content } else { others.append(content) }
    }

    public func forEach(_ body: (VendorContent) -> Void) {
        if let first { body(first) }
        for other in others { body(other) }
    }

    /// Changes each content in its place, in the order of `forEach`.
    public mutating func change(_ body: (inout VendorContent) -> Void) {
        guard first != nil else { return }
        body(&first!)
        for index in others.indices { body(&others[index]) }
    }

    /// Points each body and collapse id, in the order of `forEach`, at the bytes that lie one behind the other there.
    ///
    /// - Returns: where they end.
    public mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        guard first != nil else { return start }
        var end = first!.point(at: start)
        for index in others.indices { end = others[index].point(at: end) }
        return end
    }

    /// The channels that there are contents for.
    var channels: ChannelSet {
        var channels: ChannelSet = []
        forEach { channels.insert(ChannelSet($0.channel)) }
        return channels
    }

    /// The bytes of all bodies and collapse ids.
    var byteCount: Int {
        var count = 0
        forEach { count += $0.body.count + $0.collapseID.count }
        return count
    }

    /// The tokens that the contents go to, each to its own.
    func contains(where isMeant: (TokenNeed) -> Bool) -> Bool {
        if let first, isMeant(first.need) { return true }
        return others.contains { isMeant($0.need) }
    }
}

extension VendorContent {
    fileprivate mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        body = UnsafeRawBufferPointer(start: start, count: body.count)
        collapseID = UnsafeRawBufferPointer(start: start + body.count, count: collapseID.count)
        return start + body.count + collapseID.count
    }
}
