package import Wire

/// A message's contents for vendors, at most one for each channel, each in its channel's place.
///
/// Without an array: a command is copied as plain bytes wherever it goes.
package struct VendorContents {
    private var places = PerChannel<VendorContent?> { _ in nil }

    package init(_ content: VendorContent? = nil) {
        if let content { add(content) }
    }

    package var isEmpty: Bool { channels.isEmpty }

    /// The content for a channel.
    package subscript(channel: VendorChannel) -> VendorContent? { places[channel] }

    /// The content of the lowest channel that has one.
    var first: VendorContent? {
        var first: VendorContent?
        places.forEach { if first == nil { first = $0 } }
        return first
    }

    /// Adds the content of one more channel; of two for one channel the first stays.
    package mutating func add(_ content: VendorContent) {
        if places[content.channel] == nil { places[content.channel] = content }
    }

    /// Visits the contents in the order of their channels.
    package func forEach(_ body: (VendorContent) -> Void) {
        places.forEach { if let content = $0 { body(content) } }
    }

    /// Changes each content in its place, in the order of `forEach`.
    package mutating func change(_ body: (inout VendorContent) -> Void) {
        places.change { if $0 != nil { body(&$0!) } }
    }

    /// Points each body and collapse id, in the order of `forEach`, at the bytes that lie one behind the other there.
    ///
    /// The caller copied them there: `byteCount` bytes.
    ///
    /// - Returns: where they end.
    package mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        var end = unsafe start
        change { unsafe end = $0.point(at: end) }
        return unsafe end
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
        forEach { count += $0.textByteCount }
        return count
    }

    /// The tokens that the contents go to, each to its own.
    func contains(where isMeant: (TokenNeed) -> Bool) -> Bool {
        var isFound = false
        forEach { isFound = isFound || isMeant($0.need) }
        return isFound
    }
}
