internal import Quotas
internal import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// The parsed `settings` of a push; `FieldTable` documents the use of each field.
struct PushSettings {
    /// The kinds of endpoints, which accept different fields.
    enum Scope { case single, alias, list }

    var timeToLive: Int64
    var strategy = Strategy.standard
    /// The strategies of single vendors; empty after `settleOnApple`.
    var vendorStrategies = VendorStrategies()
    var collapseKey = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The text that the message's events repeat; empty without one.
    var customCallback: [UInt8] = []
    /// The speed of a broadcast in messages per second; 0 for unlimited.
    ///
    /// Checked for all calls, because SDKs send it in all calls.
    var speed: Int64 = 0
    /// Whether the first ack of one of the alias's devices ends the message for the others.
    var firstAckWins = false
    /// The scheduled time; 0 for immediate.
    var scheduleAt: GatewayTime = 0
    /// The refusal of a new list or broadcast whose time is too long ago; a repeated one was in time.
    var lateness: GetuiFault?

    /// Returns whether a vendor of the platform is the only channel of a message; `standard` is the message's general strategy.
    func isVendorOnly(on platform: VendorPlatform, _ standard: Strategy) -> Bool {
        VendorChannel.vendors.contains { vendor in
            vendor.platform == platform
                && (vendorStrategies[vendor] ?? standard).losesWhatVendorLeavesOut(timeToLive: timeToLive)
        }
    }

    // `callerOffset`: the caller's clock minus gateway time, in milliseconds.
    init(
        _ value: JSONValue?, app: App, scope: Scope, now: GatewayTime, callerOffset: Int64 = 0
    ) throws(GetuiFault) {
        timeToLive = app.defaultTimeToLive
        guard let value = try Self.object(value, "settings") else { return }
        if let ttl = value["ttl"]?.given {
            guard [.integer, .double, .string].contains(ttl.kind) else { throw .type("ttl") }
            guard let milliseconds = ttl.lenientInteger, (-1...app.longestTimeToLive).contains(milliseconds) else {
                throw .invalid("ttl", "milliseconds from 0 to \(app.longestTimeToLive), or -1")
            }
            timeToLive = milliseconds
        }
        try readStrategy(value["strategy"])
        if let key = value["collapse_key"]?.given {
            guard let bytes = key.stringBytes else { throw .type("collapse_key") }
            guard scalarCount(bytes) != nil else { throw .invalid("collapse_key", "not valid Unicode") }
            guard bytes.count <= Limits.collapseKeyByteCount else {
                throw .size("collapse_key", "at most \(Limits.collapseKeyByteCount) bytes")
            }
            collapseKey = bytes
        }
        try readCustomCallback(value["custom_callback"])
        speed = try Self.integer(value, "speed", 0...1_000_000) ?? 0
        try readSchedule(value, scope, now, callerOffset, app.scheduleHorizon)
        try readFirstAckWins(value["first_ack_wins"], scope)
    }

    private mutating func readCustomCallback(_ value: JSONValue?) throws(GetuiFault) {
        guard let value = value?.given else { return }
        guard let text = value.lenientText else { throw .type("custom_callback") }
        guard text.utf8.count <= Limits.customCallbackByteCount else {
            throw .size("custom_callback", "at most \(Limits.customCallbackByteCount) bytes")
        }
        customCallback = Array(text.utf8)
    }

    private mutating func readStrategy(_ value: JSONValue?) throws(GetuiFault) {
        guard let value = try Self.object(value, "strategy") else { return }
        if let standard = value["default"]?.givenNonzero { strategy = try Self.strategy(standard) }
        for channel in VendorChannel.vendors {
            guard let own = value[channel.getuiName]?.givenNonzero else { continue }
            vendorStrategies[channel] = try Self.strategy(own)
        }
    }

    /// Applies the APNs strategy to the whole message; called for a message without content for other platforms.
    mutating func settleOnApple() {
        if let own = vendorStrategies[.apns] { strategy = own }
        vendorStrategies = VendorStrategies()
    }

    /// Parses `first_ack_wins`, which requires a push to several devices of one person.
    private mutating func readFirstAckWins(_ value: JSONValue?, _ scope: Scope) throws(GetuiFault) {
        guard let value = value?.given else { return }
        guard let isSet = value.lenientBool else { throw .type("first_ack_wins") }
        guard !isSet || scope == .alias else { throw .invalid("first_ack_wins", "only a push to an alias has it") }
        firstAckWins = isSet
    }

    private mutating func readSchedule(
        _ value: JSONValue, _ scope: Scope, _ now: GatewayTime, _ callerOffset: Int64, _ horizon: Int64
    ) throws(GetuiFault) {
        guard let time = try Self.integer(value, "schedule_time", 0...Int64(1 << 52)), time > 0 else { return }
        // The time is by the caller's clock; schedules use gateway time.
        switch ScheduleRules.judge(max(1, time - callerOffset), now: now, horizon: horizon) {
        case .atOnce: break
        case .later(let time):
            guard scope == .list else { throw .invalid("schedule_time", "a push to one target goes out at once") }
            // Until the scheduled time, gateway time slews towards the clock by a twentieth of the interval. Only the offset that
            // remains then is subtracted.
            let left = max(0, abs(callerOffset) - (time - now) / 20)
            scheduleAt = time + callerOffset - callerOffset.signum() * left
        case .outOfRange:
            let days = horizon / 86_400_000
            throw GetuiFault(
                code: .badSchedule, message: "schedule_time is invalid, it lies within \(days) days from now")
        case .past:
            let fault = GetuiFault(
                code: .badSchedule,
                message: "schedule_time is invalid, it is more than an hour ago: it counts milliseconds since 1970")
            guard scope == .list else { throw fault }
            lateness = fault
        }
    }

    private static func strategy(_ value: JSONValue) throws(GetuiFault) -> Strategy {
        guard [.integer, .double, .string].contains(value.kind) else { throw .type("strategy") }
        switch value.lenientInteger {
        case 1, 6: return .liveElseVendor  // 6 is Getui's quota choice among Android vendors
        case 2: return .vendorOnly
        case 3: return .liveOnly
        case 4: return .vendorElseLive
        default: throw .invalid("strategy", "1 to 4, or 6")
        }
    }

    static func integer(
        _ object: JSONValue, _ name: StaticString, _ range: ClosedRange<Int64>
    ) throws(GetuiFault) -> Int64? {
        guard let value = range.contains(0) ? object[name]?.given : object[name]?.givenNonzero else { return nil }
        guard [.integer, .double, .string].contains(value.kind) else { throw .type("\(name)") }
        guard let number = value.lenientInteger, range.contains(number) else {
            throw .invalid("\(name)", "\(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    static func object(_ value: JSONValue?, _ name: String) throws(GetuiFault) -> JSONValue? {
        guard let value = value?.given else { return nil }
        guard value.kind == .object else { throw .type(name) }
        return value
    }
}
