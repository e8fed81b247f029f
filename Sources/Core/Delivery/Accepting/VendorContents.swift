package import Wire

/// Platforms as bits.
package struct PlatformSet: OptionSet, Sendable {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    package init(_ platform: VendorPlatform) { self.init(rawValue: 1 << platform.rawValue) }
}

/// A message's vendor contents, at most one per platform.
///
/// Not an array, because commands are copied often and must be plain bytes.
package struct VendorContents {
    private var apple: VendorContent?
    private var android: VendorContent?
    private var harmony: VendorContent?
    /// The content for a follow-up channel, in addition to the content for the device's vendor.
    private(set) var followUp: VendorContent?

    package init(_ content: VendorContent? = nil) {
        if let content { add(content) }
    }

    package var isEmpty: Bool { apple == nil && !hasOthers && followUp == nil }
    /// Whether the device's tokens decide which of the contents is kept.
    var needsChoice: Bool { hasOthers || followUp != nil }
    private var hasOthers: Bool { android != nil || harmony != nil }

    package subscript(platform: VendorPlatform) -> VendorContent? {
        get {
            switch platform {
            case .apple: apple
            case .android: android
            case .harmony: harmony
            case .followUp: followUp
            }
        }
        set {
            switch platform {
            case .apple: apple = newValue
            case .android: android = newValue
            case .harmony: harmony = newValue
            case .followUp: followUp = newValue
            }
        }
    }

    var first: VendorContent? { apple ?? android ?? harmony ?? followUp }

    /// Adds the content of one more platform; ignored if the platform already has a content.
    package mutating func add(_ content: VendorContent) {
        if self[content.channel.platform] == nil { self[content.channel.platform] = content }
    }

    @inline(__always)
    package func forEach(_ body: (VendorContent) -> Void) {
        if let apple { body(apple) }
        guard needsChoice else { return }
        if let android { body(android) }
        if let harmony { body(harmony) }
        if let followUp { body(followUp) }
    }

    package mutating func change(_ body: (inout VendorContent) -> Void) {
        for platform in VendorPlatform.allCases where self[platform] != nil { body(&self[platform]!) }
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

    /// Returns the content for a channel, and the follow-up's content.
    func only(_ channel: VendorChannel) -> VendorContents {
        var content = self[channel.platform]
        content?.channel = channel
        var kept = VendorContents(content)
        kept.followUp = followUp
        return kept
    }
}
