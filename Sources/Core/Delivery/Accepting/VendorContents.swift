package import Wire

/// A message's vendor contents, at most one per channel.
///
/// Not an array, because commands are copied often and must be plain bytes.
package struct VendorContents {
    private var places = PerChannel<VendorContent?> { _ in nil }

    package init(_ content: VendorContent? = nil) {
        if let content { add(content) }
    }

    package var isEmpty: Bool { channels.isEmpty }

    package subscript(channel: VendorChannel) -> VendorContent? { places[channel] }

    var first: VendorContent? {
        var first: VendorContent?
        places.forEach { if first == nil { first = $0 } }
        return first
    }

    /// Adds the content of one more channel; ignored if the channel already has a content.
    package mutating func add(_ content: VendorContent) {
        if places[content.channel] == nil { places[content.channel] = content }
    }

    package func forEach(_ body: (VendorContent) -> Void) {
        places.forEach { if let content = $0 { body(content) } }
    }

    package mutating func change(_ body: (inout VendorContent) -> Void) {
        places.change { if $0 != nil { body(&$0!) } }
    }

    /// Points each body and collapse id, in the order of `forEach`, at consecutive bytes from `start`.
    ///
    /// The caller must have copied all `byteCount` bytes there.
    ///
    /// - Returns: the end of the bytes.
    package mutating func point(at start: UnsafeRawPointer) -> UnsafeRawPointer {
        var end = unsafe start
        change { unsafe end = $0.point(at: end) }
        return unsafe end
    }

    var channels: ChannelSet {
        var channels: ChannelSet = []
        forEach { channels.insert(ChannelSet($0.channel)) }
        return channels
    }

    var byteCount: Int {
        var count = 0
        forEach { count += $0.textByteCount }
        return count
    }

    func contains(where isMeant: (TokenNeed) -> Bool) -> Bool {
        var isFound = false
        forEach { isFound = isFound || isMeant($0.need) }
        return isFound
    }
}
