/// The bounds of calls about users; Getui's numbers, each configurable.
public struct UserLimits: Sendable, Equatable {
    /// Items of one list of aliases.
    public var aliasItems = 1_000
    /// Characters of an alias: Getui says fewer than 40.
    public var aliasCharacters = 39
    public var tagsPerDevice = 100
    public var tagCharacters = 32
    /// Characters of all tags of one device together.
    public var tagTotalCharacters = 512
    /// Devices that one call gives a tag or takes it from.
    public var tagDevices = 1_000
    public var blacklistDevices = 200
    public var badgeDevices = 200
    /// The HTTP server must take a request line of 40 KiB for a thousand cids.
    public var statusDevices = 1_000
    public var detailDevices = 1_000
    public var deviceStatusDevices = 100
    /// Test devices of one app.
    public var testDevices = 1_000
    public init() {}
}
