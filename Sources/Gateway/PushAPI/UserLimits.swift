/// The limits of calls about users.
///
/// The defaults are Getui's; each is configurable.
package struct UserLimits: Sendable, Equatable {
    package var aliasItems = 1_000
    /// Characters of an alias: Getui says fewer than 40.
    package var aliasCharacters = 39
    package var tagsPerDevice = 100
    package var tagCharacters = 32
    package var tagTotalCharacters = 512
    package var tagDevices = 1_000
    package var blacklistDevices = 200
    package var badgeDevices = 200
    /// A thousand cids need a request line of 40 KiB in the HTTP server.
    package var statusDevices = 1_000
    package var detailDevices = 1_000
    package var deviceStatusDevices = 100
    package var testDevices = 1_000
    package init() {}
}
