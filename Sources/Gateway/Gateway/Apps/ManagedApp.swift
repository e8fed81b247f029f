internal import Configuration
internal import Cryptography
internal import Delivery
internal import PushAPI
internal import Wire

/// A secret of a managed app, and until when it holds.
struct ManagedSecret: Sendable, Codable, Equatable, CustomStringConvertible, CustomReflectable {
    /// The text itself.
    ///
    /// Say beside each use where it goes.
    var exposed: String
    /// Gateway time after which it proves nothing; 0: it has no end.
    var until: GatewayTime = 0

    func holds(at now: GatewayTime) -> Bool { until == 0 || now < until }
    var description: String { "(secret)" }
    var customMirror: Mirror { Mirror(self, children: []) }
}

/// An app that the admin API made: a row of the table `meta`, which all gateways on the store follow.
struct ManagedApp: Sendable, Codable, Equatable {
    var appID: String
    var appKey: String
    /// Newest first, with those that hold no more until the next change.
    var appSecrets: [ManagedSecret]
    var masterSecrets: [ManagedSecret]
    /// What else stands in the configuration's `apps[]`, as JSON with sorted keys.
    var settings: String
    var isEnabled = true
    var createdAt: GatewayTime
    var changedAt: GatewayTime
    /// That of the book with the app's last change.
    var version: UInt64 = 0

    var key: AppKey { AppKey(appID: appID) }

    /// When the next of its secrets ends.
    func nextEnd(after now: GatewayTime) -> GatewayTime {
        (appSecrets + masterSecrets).map(\.until).filter { $0 > now }.min() ?? .max
    }

    /// What is in force at `now`, read by the configuration's own rules.
    ///
    /// Problems are those of a row that another release wrote: the keys that have one keep their defaults.
    func configuration(now: GatewayTime) -> (app: AppConfiguration?, problems: [ConfigurationProblem]) {
        AppText.read(
            settings, appID: appID, appKey: appKey, appSecrets: Self.texts(appSecrets, now),
            masterSecrets: Self.texts(masterSecrets, now))
    }

    static func texts(_ secrets: [ManagedSecret], _ now: GatewayTime) -> [String] {
        secrets.filter { $0.holds(at: now) }.map(\.exposed)
    }
}

/// An app as the configuration's text has it.
enum AppText {
    /// Keys that no settings name: they change by other calls, or never.
    static let ownKeys = ["appId", "appKey", "appSecret", "masterSecret", "appSecretFile", "masterSecretFile"]

    /// Keys whose objects may have a webhook.
    static let feedKeys = ["upstream", "events"]
    /// Stands in answers where a webhook's secret is.
    private static let hiddenSecret = "(not shown)"

    /// The keys of a feed's webhook.
    static func webhookKeys(of feed: String, in members: [JSON5Member]) -> Set<String> {
        guard case .object(let feed)? = members.first(where: { $0.key == feed })?.node.value,
            case .object(let webhook)? = feed.first(where: { $0.key == "webhook" })?.node.value
        else { return [] }
        return Set(webhook.map(\.key))
    }

    /// The settings as an answer may show them.
    static func shown(_ settings: String) -> String {
        guard let root = try? JSON5Parser.parse(Array(settings.utf8)), case .object(let members) = root.value else {
            return "{}"
        }
        let mark = JSON5Node(.object([JSON5Member("secret", JSON5Node(.string(hiddenSecret)))]))
        let hidden = feedKeys.filter { webhookKeys(of: $0, in: members).contains("secret") }
        let patch = hidden.map { JSON5Member($0, JSON5Node(.object([JSON5Member("webhook", mark)]))) }
        return root.merged(with: JSON5Node(.object(patch))).json
    }

    static func read(
        _ settings: String, appID: String, appKey: String, appSecrets: [String], masterSecrets: [String]
    ) -> (app: AppConfiguration?, problems: [ConfigurationProblem]) {
        guard let root = try? JSON5Parser.parse(Array(settings.utf8)), case .object(var members) = root.value else {
            return (nil, [ConfigurationProblem(path: "", position: nil, text: "the settings are no JSON object")])
        }
        members.removeAll { ownKeys.contains($0.key) }
        func list(_ texts: [String]) -> JSON5Node { JSON5Node(.array(texts.map { JSON5Node(.string($0)) })) }
        members += [
            JSON5Member("appId", JSON5Node(.string(appID))), JSON5Member("appKey", JSON5Node(.string(appKey))),
            JSON5Member("appSecret", list(appSecrets)), JSON5Member("masterSecret", list(masterSecrets)),
        ]
        return ConfigurationReader.app(members)
    }

    /// As many letters and digits, just under six bits each.
    static func random(_ count: Int) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)
        var text: [UInt8] = []
        while text.count < count {
            // A byte above four alphabets would favour the first letters.
            for byte in SecureRandom.bytes(count) where byte < 248 && text.count < count {
                text.append(alphabet[Int(byte) % alphabet.count])
            }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

// The row: JSON, so that a release that knows fewer keys passes over the others.
extension ManagedApp {
    private static let form: Int64 = 1

    var row: [UInt8] {
        func secrets(_ all: [ManagedSecret]) -> JSON5Node {
            JSON5Node(
                .array(
                    all.map { secret in
                        JSON5Node(
                            .object([
                                JSON5Member("text", JSON5Node(.string(secret.exposed))),
                                JSON5Member("until", JSON5Node(.integer(secret.until))),
                            ]))
                    }))
        }
        let members = [
            JSON5Member("form", JSON5Node(.integer(Self.form))), JSON5Member("appId", JSON5Node(.string(appID))),
            JSON5Member("appKey", JSON5Node(.string(appKey))), JSON5Member("appSecrets", secrets(appSecrets)),
            JSON5Member("masterSecrets", secrets(masterSecrets)),
            JSON5Member("settings", JSON5Node(.string(settings))),
            JSON5Member("enabled", JSON5Node(.boolean(isEnabled))),
            JSON5Member("createdAt", JSON5Node(.integer(createdAt))),
            JSON5Member("changedAt", JSON5Node(.integer(changedAt))),
            JSON5Member("version", JSON5Node(.integer(Int64(version)))),
        ]
        return Array(JSON5Node(.object(members)).json.utf8)
    }

    /// Reads what `row` writes; `nil` for what no release wrote.
    init?(row: UnsafeRawBufferPointer) {
        guard let root = try? JSON5Parser.parse(Array(row)), case .object(let members) = root.value else { return nil }
        let values = Dictionary(members.map { ($0.key, $0.node.value) }, uniquingKeysWith: { first, _ in first })
        func text(_ key: String) -> String? { if case .string(let text) = values[key] { text } else { nil } }
        func number(_ key: String) -> Int64? {
            if case .integer(let number) = values[key], number >= 0 { number } else { nil }
        }
        func secrets(_ key: String) -> [ManagedSecret]? {
            guard case .array(let nodes) = values[key], !nodes.isEmpty else { return nil }
            var all: [ManagedSecret] = []
            for node in nodes {
                guard case .object(let parts) = node.value else { return nil }
                var secret = ManagedSecret(exposed: "")
                for part in parts {
                    if part.key == "text", case .string(let text) = part.node.value { secret.exposed = text }
                    if part.key == "until", case .integer(let until) = part.node.value { secret.until = until }
                }
                all.append(secret)
            }
            return all
        }
        guard let appID = text("appId"), ConfigurationReader.isAppID(appID), let appKey = text("appKey"),
            let appSecrets = secrets("appSecrets"), let masterSecrets = secrets("masterSecrets"),
            let settings = text("settings"), let createdAt = number("createdAt"), let changedAt = number("changedAt"),
            let version = number("version"), case .boolean(let isEnabled) = values["enabled"]
        else { return nil }
        self.init(
            appID: appID, appKey: appKey, appSecrets: appSecrets, masterSecrets: masterSecrets, settings: settings,
            isEnabled: isEnabled, createdAt: createdAt, changedAt: changedAt, version: UInt64(version))
    }
}
