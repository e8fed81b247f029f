internal import Wire

/// What a shard knows of an app whose devices, messages or jobs it has.
///
/// The shard never takes an app that is not known (yet) for one with empty settings: what needs a setting asks for it here.
enum AppKnowledge {
    /// Its settings; `isServed` of them says whether the app is switched on.
    case known(AppSettings)
    /// The gateway knows all apps, and this is none of them: it was deleted, or has left the configuration file.
    case absent
    /// The gateway has not been told of all apps yet: it starts in a cluster.
    case unknown

    var settings: AppSettings? {
        if case .known(let settings) = self { settings } else { nil }
    }
}

/// An app in the tables of a shard.
struct AppEntry {
    let key: AppKey
    var knowledge: AppKnowledge

    init(_ settings: AppSettings) { (key, knowledge) = (settings.key, .known(settings)) }

    init(unlisted key: AppKey, knowsAllApps: Bool) { (self.key, knowledge) = (key, knowsAllApps ? .absent : .unknown) }

    /// The app is switched on: its publishes, devices and receipts are taken.
    var isServed: Bool { knowledge.settings?.isServed ?? false }

    /// How often a job may be leased; without settings no number of leases ends it.
    var maxAttempts: Int { knowledge.settings?.maxAttempts ?? .max }

    /// The topic of a channel's tokens that name none; `nil`: not known, so the job cannot be leased.
    func topic(of channel: VendorChannel) -> String? { knowledge.settings?.topic(of: channel) }

    /// Whether senders may have its jobs: those of an app that is switched off, too.
    var mayLease: Bool { knowledge.settings != nil }

    /// What becomes of its events.
    enum EventRule {
        case off
        case kept(FeedLimits)
        /// Whether the app has the feed is not known yet: the event is counted as missing, and its feed tells of a gap.
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

extension Shard {
    /// What the shard knows of an app, whether or not it has anything of it.
    func knowledge(of key: AppKey) -> AppKnowledge {
        guard let place = appPlaces[key] else { return knowsAllApps ? .absent : .unknown }
        return apps[place].knowledge
    }

    func isServed(_ key: AppKey) -> Bool { appPlaces[key].map { apps[$0].isServed } ?? false }
}
