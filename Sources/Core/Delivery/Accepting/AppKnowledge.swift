internal import Wire

/// The state of an app in a shard that has devices, messages or jobs of it.
///
/// The shard never takes an app that is not known (yet) for one with empty settings: what needs a setting asks for it here.
enum AppKnowledge {
    /// Its settings; `isServed` of them says whether the app is switched on.
    case known(AppSettings)
    /// The gateway knows all apps, and this is none of them: it was deleted, or has left the configuration file.
    case absent
    /// The gateway does not have the list of all apps yet: it starts in a cluster.
    case unknown

    var settings: AppSettings? {
        if case .known(let settings) = self { settings } else { nil }
    }
}

/// An app in the tables of a shard.
struct AppEntry {
    let key: AppKey
    var knowledge: AppKnowledge {
        didSet { (isServed, hasTopic) = (Self.isServed(knowledge), Self.hasTopic(knowledge)) }
    }
    /// The app is switched on: its publishes, devices and receipts are taken.
    ///
    /// Kept apart, since each publish looks at it.
    private(set) var isServed: Bool
    /// A token that names no topic may be of use: the app has a topic, or its settings are not known.
    private(set) var hasTopic: Bool

    init(_ settings: AppSettings) { self.init(settings.key, .known(settings)) }

    init(unlisted key: AppKey, knowsAllApps: Bool) { self.init(key, knowsAllApps ? .absent : .unknown) }

    private init(_ key: AppKey, _ knowledge: AppKnowledge) {
        (self.key, self.knowledge) = (key, knowledge)
        (isServed, hasTopic) = (Self.isServed(knowledge), Self.hasTopic(knowledge))
    }

    private static func isServed(_ knowledge: AppKnowledge) -> Bool { knowledge.settings?.isServed ?? false }
    private static func hasTopic(_ knowledge: AppKnowledge) -> Bool { knowledge.settings?.apnsTopic.isEmpty != true }

    /// How often a job may be leased; without settings no number of leases ends it.
    var maxAttempts: Int { knowledge.settings?.maxAttempts ?? .max }

    /// The topic of a channel's tokens that name none; `nil`: not known, so the job cannot be leased.
    func topic(of channel: VendorChannel) -> String? { knowledge.settings?.topic(of: channel) }

    /// Whether senders may have its jobs: those of an app that is switched off, too.
    var mayLease: Bool { knowledge.settings != nil }

    /// The way in which the app's events are recorded.
    enum EventRule {
        case off
        case kept(FeedLimits)
        /// It is not known yet whether the app has the feed.
        ///
        /// The event is counted as missing, and the feed reports a gap.
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
