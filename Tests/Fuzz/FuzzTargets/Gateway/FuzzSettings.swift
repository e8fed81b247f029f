import Configuration
internal import Gateway
internal import PushAPI

/// A configuration that differs from the default in a few keys.
struct FuzzSettings: Equatable {
    var limits: [String: Int64] = [:]
    /// The first app's keys in `queue`, in `push` and at its top level, as written in the file.
    var queue: [String: String] = ["messages": "200", "overflow": "'dropOldest'"]
    var push: [String: String] = [:]
    var app: [String: String] = [:]
    var hasSecondApp = true

    init() {
        // Small enough for a few requests to reach the limits.
        limits = ["cachedDevices": 100, "dueJobReadAhead": 64, "waitingCommandsPerDevice": 16]
        // With daily and per-minute quotas most requests of an input would be refused.
        for key in LimitKey.all where key.name.hasSuffix("PerMinute") || key.name.hasSuffix("PerDay") {
            limits[key.name] = 0
        }
    }

    func text() -> String {
        func object(_ members: [String: String]) -> String {
            "{" + members.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }.joined(separator: ", ") + "}"
        }
        func apps() -> String {
            let own = app.sorted { $0.key < $1.key }.map { ", \($0.key): \($0.value)" }.joined()
            let first =
                "{appId: 'one', appKey: 'key-0', appSecret: 'app-secret-0', masterSecret: 'master-secret-0', "
                + "apns: {topic: 'com.example.one'}, queue: \(object(queue)), push: \(object(push))\(own)}"
            let second =
                "{appId: 'two', appKey: 'key-1', appSecret: 'app-secret-1', masterSecret: 'master-secret-1', "
                + "apns: {topic: 'com.example.two'}, queue: {messages: 40, overflow: 'reject'}}"
            return hasSecondApp ? "\(first), \(second)" : first
        }
        let second = hasSecondApp ? "'two'" : "'one'"
        return """
            {
              device: {listen: '127.0.0.1:0', allowPlaintextRegistration: true}, senders: {listen: '127.0.0.1:0'},
              http: {listen: '127.0.0.1:0'}, admin: {listen: '127.0.0.1:0'},
              store: {path: 'data', durability: 'os'}, loops: 2,
              limits: \(object(limits.mapValues { "\($0)" })),
              apps: [\(apps())],
              credentials: [{name: 'all', token: '\(GatewayFuzz.bearers[0])', may: ['admin']},
                            {name: 'some', token: '\(GatewayFuzz.bearers[1])', apps: [\(second)],
                             may: ['handoff', 'trace']}],
              log: {level: 'error'},
            }
            """
    }

    /// Returns the configuration with one change: a limit at or beyond its bounds, or a key of an app.
    func changed(_ script: inout Script) -> FuzzSettings {
        var next = self
        switch script.choice(8) {
        case 0...2:
            let keys = LimitKey.all.filter(\.changesAtReload)
            let key = keys[script.choice(keys.count)]
            next.limits[key.name] = script.edge(key.range)
        case 3:
            let key = LimitKey.all[script.choice(LimitKey.all.count)]
            next.limits[key.name] = script.edge(key.range)
        case 4: next.queue["messages"] = script.pick(["1", "0", "200", "1000", "30000", "1000000", "1000001"])
        case 5: next.queue["overflow"] = script.pick(["'dropOldest'", "'reject'"])
        case 6:
            switch script.choice(4) {
            case 0: next.queue["bytes"] = script.pick(["65536", "65535", "4194304", "1073741824", "1073741825"])
            case 1: next.app["maxAttempts"] = script.pick(["1", "0", "1000", "1001"])
            case 2: next.hasSecondApp.toggle()
            default: next = FuzzSettings()
            }
        default:
            let (name, range) = Self.pushKeys[script.choice(Self.pushKeys.count)]
            next.push[name] = "\(script.edge(range))"
        }
        return next
    }

    private static let pushKeys: [(String, ClosedRange<Int64>)] = [
        ("longestTtlMilliseconds", 1_000...2_592_000_000), ("defaultTtlMilliseconds", 1_000...2_592_000_000),
        ("transmissionCharacters", 1...16_384), ("batchItems", 1...1_000), ("listTargets", 1...1_800),
        ("reportedTasks", 1...1_000), ("scheduleDays", 1...365), ("timestampToleranceSeconds", 1...86_400),
        ("callsPerMinute", 0...1_000_000_000), ("listsPerMinute", 0...1_000_000_000),
        ("listsPerDay", 0...1_000_000_000), ("broadcastsPerMinute", 0...1_000_000_000),
        ("broadcastsPerDay", 0...1_000_000_000), ("fastTagBroadcastsPerMinute", 0...1_000_000_000),
        ("fastTagBroadcastsPerDay", 0...1_000_000_000), ("authenticationsPerMinute", 0...1_000_000_000),
    ]

    /// Returns the settings with which to reopen the gateway; `nil` keeps the current ones.
    static func profile(_ header: UInt8, _ script: inout Script) -> FuzzSettings? {
        var settings = FuzzSettings()
        switch header {
        case ..<0xF0: return nil
        case 0xF0: break
        case 0xF1:
            settings.limits["frameBytes"] = 131_072
            settings.limits["outboxBytes"] = 1 << 20
        case 0xF2: settings.limits["journalBytes"] = 16 << 20
        case 0xF3: settings.limits["journalBytes"] = (64 << 20) - 1
        case 0xF4:
            settings.queue["messages"] = "30000"
            settings.queue["bytes"] = "1073741824"
            settings.limits["waitingCommandsPerDevice"] = 65_536
        case 0xF5:
            settings.push["transmissionCharacters"] = "16384"
            settings.push["batchItems"] = "1000"
            settings.push["listTargets"] = "1800"
        default:
            // `httpConnections` is excluded, because the fuzzer's own connections need room.
            let keys = LimitKey.all.filter { !$0.changesAtReload && $0.name != "httpConnections" }
            let key = keys[script.choice(keys.count)]
            settings.limits[key.name] = script.edge(key.range)
            if key.name == "frameBytes" { settings.limits["outboxBytes"] = 1 << 20 }
        }
        return settings
    }
}
