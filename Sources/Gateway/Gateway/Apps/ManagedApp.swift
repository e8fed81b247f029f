internal import Configuration
internal import Cryptography
internal import Delivery
internal import PushAPI
internal import Wire

/// A secret of a managed app, and its expiry.
struct ManagedSecret: Sendable, Codable, Equatable, CustomStringConvertible, CustomReflectable {
    /// The secret itself; a comment at each use must state where the secret goes.
    var exposed: String
    /// The gateway time at which the secret expires; 0 for never.
    var until: GatewayTime = 0

    func holds(at now: GatewayTime) -> Bool { until == 0 || now < until }
    var description: String { "(secret)" }
    var customMirror: Mirror { Mirror(self, children: []) }
}

/// An app created through the admin API: a row of the table `meta`, replicated to all gateways on the store.
struct ManagedApp: Sendable, Codable, Equatable {
    var appID: String
    var appKey: String
    /// The secrets with which devices register, newest first; expired secrets remain until the next change of the app.
    var appSecrets: [ManagedSecret]
    var masterSecrets: [ManagedSecret]
    /// The other keys of the configuration's `apps[]` entry, as JSON with sorted keys.
    var settings: String
    var isEnabled = true
    var createdAt: GatewayTime
    var changedAt: GatewayTime
    /// The version of the app list at the app's last change.
    var version: UInt64 = 0

    var key: AppKey { AppKey(appID: appID) }

    /// Returns the time at which the app's next secret expires.
    func nextEnd(after now: GatewayTime) -> GatewayTime {
        (appSecrets + masterSecrets).map(\.until).filter { $0 > now }.min() ?? .max
    }

    /// Returns the configuration in force at `now`, parsed by the rules of the configuration file.
    ///
    /// Problems occur if another release wrote the row. The affected keys keep their defaults.
    func configuration(now: GatewayTime) -> (app: AppConfiguration?, problems: [ConfigurationProblem]) {
        AppText.read(
            settings, appID: appID, appKey: appKey, appSecrets: Self.texts(appSecrets, now),
            masterSecrets: Self.texts(masterSecrets, now))
    }

    static func texts(_ secrets: [ManagedSecret], _ now: GatewayTime) -> [String] {
        secrets.filter { $0.holds(at: now) }.map(\.exposed)
    }
}

enum AppText {
    /// Keys that settings may not contain; they change by other calls, or never.
    static let ownKeys = ["appId", "appKey", "appSecret", "masterSecret", "appSecretFile", "masterSecretFile"]

    static let feedKeys = ["upstream", "events"]
    /// The placeholder for a webhook's secret in answers.
    private static let hiddenSecret = "(not shown)"

    static func webhookKeys(of feed: String, in members: [JSON5Member]) -> Set<String> {
        guard case .object(let feed)? = members.first(where: { $0.key == feed })?.node.value,
            case .object(let webhook)? = feed.first(where: { $0.key == "webhook" })?.node.value
        else { return [] }
        return Set(webhook.map(\.key))
    }

    /// Returns the settings without webhook secrets.
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

    /// Returns a random string of `count` letters and digits, with just under six bits each.
    static func random(_ count: Int) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)
        var text: [UInt8] = []
        while text.count < count {
            // Larger bytes are skipped, because they would favor the first letters of the alphabet.
            for byte in SecureRandom.bytes(count) where byte < 248 && text.count < count {
                text.append(alphabet[Int(byte) % alphabet.count])
            }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

// The row's format is JSON, so an older release can ignore keys that it does not know.
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
