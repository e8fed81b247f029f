internal import Configuration
package import Delivery

/// The settings of a feed: `apps[].upstream` or `apps[].events`.
package struct FeedConfiguration: Sendable, Equatable {
    package var limits = FeedLimits()
    /// The webhook for pages; `nil` if the consumer polls.
    package var webhook: GatewayConfiguration.Hook?
    package init() {}
}

extension ConfigurationReader {
    func readFeed(
        _ object: ConfigurationObject, _ kind: FeedKind, _ secrets: inout SecretReader
    ) -> FeedConfiguration {
        var feed = FeedConfiguration()
        if let count = object.integer("maxItems", in: FeedLimits.counts) { feed.limits.count = Int(count) }
        if let count = object.integer("maxBytes", in: FeedLimits.byteCounts) { feed.limits.byteCount = Int(count) }
        if let seconds = object.integer("maxAgeSeconds", in: FeedLimits.ages) { feed.limits.age = seconds * 1_000 }
        if kind == .upstream {
            if let count = object.integer("maxItemsPerDevice", in: FeedLimits.deviceCounts) {
                feed.limits.deviceCount = Int(count)
            }
            if let count = object.integer("maxBytesPerDevice", in: FeedLimits.deviceByteCounts) {
                feed.limits.deviceByteCount = Int(count)
            }
        }
        if let webhook = object.object("webhook") {
            feed.webhook = readHook(
                webhook, &secrets, batchName: "batchItems", batchLimit: Int64(FeedBounds.pageItems))
        }
        object.finish()
        return feed
    }
}
