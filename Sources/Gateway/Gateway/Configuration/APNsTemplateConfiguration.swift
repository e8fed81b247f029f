internal import Configuration
internal import Delivery
internal import PushAPI

extension APNsTemplate {
    /// Reads `apps[].apns.template`; missing keys keep their defaults.
    init(_ object: ConfigurationObject) {
        self.init()
        if let form = object.choice("transmission", Transmission.self) { transmission = form }
        if let value = object.boolean("mutableContent") { alertsAreMutable = value }
        if let value = object.boolean("notifications") { showsNotifications = value }
        if let value = object.boolean("wake") { wakesApp = value }
        let name = "0 to \(Self.textByteLimit) bytes"
        func text(_ key: String) -> String? {
            object.string(key, allowed: name) { $0.utf8.count <= Self.textByteLimit }
        }
        if let value = text("sound") { sound = value }
        if let value = text("category") { category = value }
        if let value = text("threadId") { threadID = value }
        if let level = object.choice("interruptionLevel", InterruptionLevel.self) { interruptionLevel = level }
        let allowed = "\"+1\", \"-1\" or \"5\", as auto_badge"
        if let value = object.string("badge", allowed: allowed, where: { Self.badge($0) != nil }) {
            badge = Self.badge(value) ?? .none
        }
        object.finish()
    }

    /// The limit of each text, in bytes; it is low, because every alert carries the texts in addition to its title and body.
    private static let textByteLimit = 64
}
