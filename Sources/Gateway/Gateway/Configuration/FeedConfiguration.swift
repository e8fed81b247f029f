internal import Configuration
package import Delivery

/// The settings of a feed: `apps[].upstream` or `apps[].events`.
package struct FeedConfiguration: Sendable, Equatable {
    package var limits = FeedLimits()
    /// The webhook that receives the feed's pages; `nil` if the consumer polls.
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

    /// Reads `apps[].getuiReceipts`, a webhook for the event feed.
    ///
    /// The setting also enables the event feed.
    /// The webhook has no secret because Getui's receipts are signed with the masterSecret.
    func readReceipts(
        _ object: ConfigurationObject, beside app: ConfigurationObject, _ secrets: inout SecretReader,
        into configuration: inout AppConfiguration
    ) {
        var hook = readHook(
            object, &secrets, batchName: "batchItems", batchLimit: Int64(FeedBounds.pageItems), hasSecret: false)
        guard configuration.events?.webhook == nil else {
            return app.report(
                "getuiReceipts", "not allowed beside events.webhook, because the feed of events has one reader")
        }
        // `readApp` has already reported a missing masterSecret.
        guard let secret = configuration.masterSecrets.first else { return }
        hook?.form = .getuiReceipts(masterSecret: secret)
        var events = configuration.events ?? FeedConfiguration()
        events.webhook = hook
        configuration.events = events
    }
}
