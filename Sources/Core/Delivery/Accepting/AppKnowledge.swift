internal import Wire

/// The knowledge of a shard about an app that has devices, messages or jobs.
///
/// An unknown app must not be treated as an app with empty settings, so code that needs a setting reads it from here.
enum AppKnowledge {
    /// The app's settings; `isServed` in them is false for a disabled app.
    case known(AppSettings)
    /// The app was deleted or removed from the configuration file; the gateway knows all apps.
    case absent
    /// The gateway starts in a cluster and does not have the list of apps yet.
    case unknown

    var settings: AppSettings? {
        if case .known(let settings) = self { settings } else { nil }
    }
}

struct AppEntry {
    let key: AppKey
    var knowledge: AppKnowledge {
        didSet { (isServed, hasTopic) = (Self.isServed(knowledge), Self.hasTopic(knowledge)) }
    }
    /// Whether the app is enabled: its publishes, devices and receipts are accepted.
    ///
    /// Cached because each publish reads it.
    private(set) var isServed: Bool
    /// Whether a token without a topic may be usable: the app has a topic, or its settings are unknown.
    private(set) var hasTopic: Bool

    init(_ settings: AppSettings) { self.init(settings.key, .known(settings)) }

    init(unlisted key: AppKey, knowsAllApps: Bool) { self.init(key, knowsAllApps ? .absent : .unknown) }

    private init(_ key: AppKey, _ knowledge: AppKnowledge) {
        (self.key, self.knowledge) = (key, knowledge)
        (isServed, hasTopic) = (Self.isServed(knowledge), Self.hasTopic(knowledge))
    }

    private static func isServed(_ knowledge: AppKnowledge) -> Bool { knowledge.settings?.isServed ?? false }
    private static func hasTopic(_ knowledge: AppKnowledge) -> Bool { knowledge.settings?.apnsTopic.isEmpty != true }

    /// The maximum number of leases of a job; unlimited while the settings are unknown.
    var maxAttempts: Int { knowledge.settings?.maxAttempts ?? .max }

    /// Returns the default topic of a channel's tokens; `nil` if unknown, so the job cannot be leased.
    func topic(of channel: VendorChannel) -> String? { knowledge.settings?.topic(of: channel) }

    var vendorOrder: [VendorChannel] { knowledge.settings?.vendorOrder ?? [] }

    /// Whether senders may lease the app's jobs; this includes a disabled app.
    var mayLease: Bool { knowledge.settings != nil }

    enum EventRule {
        case off
        case kept(FeedLimits)
        /// The settings are unknown: the event is counted as missing, and the feed reports a gap.
        case counted
    }

    var eventRule: EventRule {
        switch knowledge {
        case .known(let settings): settings.events.map(EventRule.kept) ?? .off
        case .absent: .off
        case .unknown: .counted
        }
    }

    @inline(__always)
    var mayHaveEvents: Bool {
        switch knowledge {
        case .known(let settings): settings.events != nil
        case .absent: false
        case .unknown: true
        }
    }
}
