internal import Configuration
internal import Delivery
internal import PushAPI
internal import Wire

enum AppResult: Sendable, Codable {
    /// The app after the change.
    ///
    /// `isNew` means that something changed. `shown` holds secrets that the gateway generated, shown only this once.
    case done(ManagedApp, isNew: Bool, shown: [ShownSecret])
    case refused(AppRefusal, String)
}

struct ShownSecret: Sendable, Codable, CustomStringConvertible {
    var name: String
    var exposed: String
    var description: String { "\(name): (secret)" }
}

/// The apps changed since a version, oldest change first.
struct AppNews: Sendable, Codable {
    /// The requested version, or 0 if it is ahead of this store's version; 0 means that `changed` covers all apps.
    var since: UInt64
    /// The store history in which the versions were assigned.
    var history: UInt64
    /// The version of the whole list.
    var head: UInt64
    /// All existing apps; an app missing here was deleted.
    var all: [AppKey]
    var changed: [ManagedApp]
    /// `false` if more changes follow in another piece.
    var isLast: Bool

    /// Whether news from another gateway is within the list's limits.
    var isSound: Bool {
        head < ManagedApps.versionLimit && all.count <= ConfigurationLimits.appCount
            && changed.allSatisfy { $0.version <= head }
    }
}

/// Facts outside the list that changes are checked against.
struct AppSurroundings {
    /// The appIds in the configuration file.
    var fileApps: Set<String> = []
    /// The tokens of all credentials; an app's secret must differ from them.
    var tokens: Set<Secret> = []
    var history = StoreHistory(ofNewStore: 1)

    init() {}

    init(_ configuration: GatewayConfiguration) {
        fileApps = Set(configuration.apps.map(\.appID))
        tokens = Set(configuration.credentials.flatMap(\.tokens))
    }
}

/// The apps created through the admin API, and the rules of their changes; no I/O.
struct ManagedApps: Sendable {
    private(set) var version: UInt64 = 0
    /// The id of the store history in the last `AppNews` applied; 0 for none.
    private(set) var history: UInt64 = 0
    private(set) var apps: [AppKey: ManagedApp] = [:]

    /// The default time for which an old secret remains valid beside a new one.
    ///
    /// An app's servers can be given a new masterSecret within a day. Installed apps get a new appSecret only with an update,
    /// within months.
    static let defaultOverlapSeconds: [String: Int64] = ["masterSecret": 86_400, "appSecret": 90 * 86_400]
    static let longestOverlapSeconds: Int64 = 366 * 86_400
    /// The size limit of one piece of news, in bytes of settings.
    private static let newsByteCount = 256 << 10
    /// The most apps that one process may serve over its lifetime, deleted ones included; a device refers to its app by a 16-bit
    /// index.
    static let lifetimeAppCount = 32_000
    static let versionLimit: UInt64 = 1 << 62

    init() {}

    /// Creates the list from its rows; `version` is the stored version of the list.
    init(_ apps: [ManagedApp], version: UInt64) {
        self.apps = Dictionary(apps.map { ($0.key, $0) }, uniquingKeysWith: { $1 })
        self.version = max(version, apps.map(\.version).max() ?? 0)
    }

    var sorted: [ManagedApp] { apps.values.sorted { $0.appID < $1.appID } }

    func nextEnd(after now: GatewayTime) -> GatewayTime { apps.values.map { $0.nextEnd(after: now) }.min() ?? .max }

    mutating func put(_ app: ManagedApp) {
        apps[app.key] = app
        version = max(version, app.version)
    }

    mutating func remove(_ app: AppKey, version: UInt64) {
        apps[app] = nil
        self.version = max(self.version, version)
    }

    // MARK: News

    func news(since version: UInt64, of history: StoreHistory) -> AppNews {
        // A version above that of this list was assigned by another store.
        let start = version > self.version ? 0 : version
        var changed: [ManagedApp] = []
        var byteCount = 0
        let missed = apps.values.filter { $0.version > start }.sorted { $0.version < $1.version }
        for app in missed {
            byteCount += app.settings.utf8.count + 1_024
            if byteCount > Self.newsByteCount, !changed.isEmpty { break }
            changed.append(app)
        }
        return AppNews(
            since: start, history: history.id, head: self.version, all: apps.keys.sorted { $0.word < $1.word },
            changed: changed,
            isLast: changed.count == missed.count)
    }

    /// Applies all pieces of some news at once, so that no app is missing in between; news older than the list is ignored.
    mutating func take(_ news: AppNews) {
        // The news contains all apps.
        if news.since == 0 { self = ManagedApps() }
        guard news.since <= version, news.head >= version else { return }
        for app in news.changed { put(app) }
        let all = Set(news.all)
        apps = apps.filter { all.contains($0.key) }
        (version, history) = (news.head, news.history)
    }

    // MARK: Acts

    /// Judges a change; the caller writes the row of a `done` result and then calls `put` or `remove`.
    ///
    /// `seen` are all apps that the process has served so far.
    func judge(
        _ change: AppChange, _ surroundings: AppSurroundings, seen: Set<AppKey> = [], now: GatewayTime
    ) -> AppResult {
        do throws(Refused) {
            if change.act == .create { return try create(change.body, surroundings, seen, now) }
            try requireManaged(change.appID, surroundings)
            guard var app = apps[AppKey(appID: change.appID)], app.appID == change.appID else {
                throw Refused(.unknown, "no such app")
            }
            let before = app
            var shown: [ShownSecret] = []
            switch change.act {
            case .create: break
            case .change: app.settings = try changed(app, change.body, surroundings, now)
            case .rotate: shown = try rotate(&app, change.body, surroundings, now)
            case .enable: app.isEnabled = true
            case .disable: app.isEnabled = false
            case .delete:
                guard !app.isEnabled else {
                    throw Refused(
                        .conflict, "disable the app \(app.appID) first: then nothing of it is served any more")
                }
            }
            guard app != before || change.act == .delete else { return .done(app, isNew: false, shown: []) }
            stamp(&app, surroundings.history, now)
            return .done(app, isNew: true, shown: shown)
        } catch { return .refused(error.refusal, error.message) }
    }

    private struct Refused: Error {
        var refusal: AppRefusal
        var message: String
        init(_ refusal: AppRefusal, _ message: String) { (self.refusal, self.message) = (refusal, message) }
    }

    /// Sets the version and time of a changed app.
    ///
    /// After a store was reset to an older state, new versions exceed all that an earlier history can have assigned.
    private func stamp(_ app: inout ManagedApp, _ history: StoreHistory, _ now: GatewayTime) {
        app.appSecrets.removeAll { !$0.holds(at: now) }
        app.masterSecrets.removeAll { !$0.holds(at: now) }
        app.changedAt = now
        app.version = max(version, history.began) + 1
    }

    private func requireManaged(_ appID: String, _ surroundings: AppSurroundings) throws(Refused) {
        guard !surroundings.fileApps.contains(appID) else {
            throw Refused(
                .conflict,
                "the app \(appID) is one of the configuration file, which the admin API does not change; change the file and "
                    + "reload")
        }
    }

    private func create(
        _ body: [UInt8], _ surroundings: AppSurroundings, _ seen: Set<AppKey>, _ now: GatewayTime
    ) throws(Refused) -> AppResult {
        let members = try Self.object(body)
        for file in ["appSecretFile", "masterSecretFile"] where members.contains(where: { $0.key == file }) {
            throw Refused(
                .invalid, "\(file): not allowed here; the secret itself, or nothing and the gateway makes one")
        }
        try Self.requireNoFiles(members)
        func has(_ key: String) -> Bool { members.contains { $0.key == key && $0.node.value != .null } }
        var (complete, shown) = (members.filter { $0.node.value != .null }, [ShownSecret]())
        for (key, count) in [("appKey", 22), ("appSecret", 32), ("masterSecret", 32)] where !has(key) {
            let text = AppText.random(count)
            complete.append(JSON5Member(key, JSON5Node(.string(text))))
            if key != "appKey" { shown.append(ShownSecret(name: key, exposed: text)) }
        }
        let app = try Self.sound(ConfigurationReader.app(complete), surroundings)
        try requireManaged(app.appID, surroundings)
        let settings = JSON5Node(.object(complete.filter { !AppText.ownKeys.contains($0.key) })).json
        if let present = apps[AppKey(appID: app.appID)] {
            // A caller that repeats its call after a lost answer gets the existing app.
            let isSame =
                present.appID == app.appID && present.settings == settings
                && (!has("appKey") || present.appKey == app.appKey)
                && (!has("appSecret") || app.appSecrets.map(\.exposed) == ManagedApp.texts(present.appSecrets, now))
                && (!has("masterSecret")
                    || app.masterSecrets.map(\.exposed) == ManagedApp.texts(present.masterSecrets, now))
            guard isSame else {
                throw Refused(
                    .conflict,
                    "there is an app \(present.appID) already, with other settings; change it, or use another appId")
            }
            return .done(present, isNew: false, shown: [])
        }
        guard apps.count < ConfigurationLimits.appCount else {
            throw Refused(.conflict, "there are \(apps.count) apps already, which is all that the admin API makes")
        }
        guard seen.count < Self.lifetimeAppCount || seen.contains(AppKey(appID: app.appID)) else {
            throw Refused(
                .conflict,
                "this gateway has had \(seen.count) apps since its start and keeps a place for each of them; restart it, "
                    + "then create the app")
        }
        var made = ManagedApp(
            appID: app.appID, appKey: app.appKey, appSecrets: app.appSecrets.map { ManagedSecret(exposed: $0.exposed) },
            masterSecrets: app.masterSecrets.map { ManagedSecret(exposed: $0.exposed) }, settings: settings,
            createdAt: now, changedAt: now)
        stamp(&made, surroundings.history, now)
        return .done(made, isNew: true, shown: shown)
    }

    private func changed(
        _ app: ManagedApp, _ body: [UInt8], _ surroundings: AppSurroundings, _ now: GatewayTime
    ) throws(Refused) -> String {
        let members = try Self.object(body)
        for key in AppText.ownKeys where members.contains(where: { $0.key == key }) {
            throw Refused(
                .invalid,
                key == "appId" || key == "appKey"
                    ? "\(key): not allowed here; it stays as long as the app does"
                    : "\(key): not allowed here; POST /v1/apps/{appId}/rotate changes secrets")
        }
        try Self.requireNoFiles(members)
        let present = (try? JSON5Parser.parse(Array(app.settings.utf8))) ?? JSON5Node(.object([]))
        let settings = present.merged(with: JSON5Node(.object(members))).json
        var next = app
        next.settings = settings
        _ = try Self.sound(next.configuration(now: now), surroundings)
        return settings
    }

    private func rotate(
        _ app: inout ManagedApp, _ body: [UInt8], _ surroundings: AppSurroundings, _ now: GatewayTime
    ) throws(Refused) -> [ShownSecret] {
        let problems = ConfigurationProblems()
        let object = ConfigurationObject(
            try Self.object(body), path: "", position: TextPosition(line: 1, column: 1), problems: problems)
        let kinds = "\"appSecret\" or \"masterSecret\""
        let name = object.string("secret", allowed: kinds) { Self.defaultOverlapSeconds[$0] != nil }
        if !object.has("secret") { object.report("secret", "missing; \(kinds)") }
        // The value is not shown in the error, because it may be a secret with a stray blank.
        let values = object.strings("value", limit: 1, isSecret: true)
        if let value = values?.first, !SecretReader.isVisible(value, 8...256) {
            object.report("value", "not allowed (not shown); 8 to 256 visible ASCII characters")
        }
        let overlap = object.integer("overlapSeconds", in: 0...Self.longestOverlapSeconds)
        object.finish()
        try Self.requireNone(problems.all)
        guard let name, let seconds = overlap ?? Self.defaultOverlapSeconds[name] else {
            throw Refused(.invalid, "secret: missing; \(kinds)")
        }
        let place: WritableKeyPath<ManagedApp, [ManagedSecret]> = name == "appSecret" ? \.appSecrets : \.masterSecrets
        var secrets = app[keyPath: place].filter { $0.holds(at: now) }
        // A repeated call that names the value changes nothing.
        if let value = values?.first, secrets.first?.exposed == value { return [] }
        let text = values?.first ?? AppText.random(32)
        guard !secrets.contains(where: { $0.exposed == text }) else {
            throw Refused(.conflict, "value: this \(name) is valid already; use another")
        }
        for index in secrets.indices {
            let end = now + seconds * 1_000
            secrets[index].until = secrets[index].until == 0 ? end : min(secrets[index].until, end)
        }
        secrets.removeAll { !$0.holds(at: now) }
        guard secrets.count < ConfigurationLimits.overlappingSecretCount else {
            throw Refused(
                .conflict,
                "\(secrets.count) values of \(name) are valid already; wait until one expires, or end all old ones now with "
                    + "overlapSeconds 0")
        }
        app[keyPath: place] = [ManagedSecret(exposed: text)] + secrets
        _ = try Self.sound(app.configuration(now: now), surroundings)
        // The app must also be valid after the overlap. For example, only the old secret may be long enough for tokens.
        _ = try Self.sound(app.configuration(now: .max), surroundings)
        return values == nil ? [ShownSecret(name: name, exposed: text)] : []
    }

    // MARK: Reading

    private static func object(_ body: [UInt8]) throws(Refused) -> [JSON5Member] {
        let root: JSON5Node
        do throws(JSON5Error) {
            root = try JSON5Parser.parse(body)
        } catch {
            throw Refused(.invalid, "the body, \(error.position.line):\(error.position.column): \(error.reason)")
        }
        guard case .object(let members) = root.value else { throw Refused(.invalid, "the body is an object") }
        return members
    }

    /// Rejects file paths; other gateways lack the file, and a credential for apps must not read this machine's files.
    private static func requireNoFiles(_ members: [JSON5Member]) throws(Refused) {
        for feed in AppText.feedKeys {
            for key in ["secretFile", "authorities"] where AppText.webhookKeys(of: feed, in: members).contains(key) {
                throw Refused(
                    .invalid,
                    "\(feed).webhook.\(key): not allowed here, since each gateway would need the file; give the secret "
                        + "itself, and a certificate that the system's authorities signed")
            }
        }
    }

    private static func sound(
        _ read: (app: AppConfiguration?, problems: [ConfigurationProblem]), _ surroundings: AppSurroundings
    ) throws(Refused) -> AppConfiguration {
        try requireNone(read.problems)
        guard let app = read.app else { throw Refused(.invalid, "the body is no app") }
        let problems = ConfigurationReader.secretProblems(of: app, tokens: surroundings.tokens)
        guard problems.isEmpty else { throw Refused(.invalid, problems.joined(separator: "; ")) }
        return app
    }

    private static func requireNone(_ problems: [ConfigurationProblem]) throws(Refused) {
        guard !problems.isEmpty else { return }
        let shown = problems.prefix(ConfigurationLimits.reportedProblemCount).map(\.description)
        throw Refused(.invalid, shown.joined(separator: "; "))
    }
}
