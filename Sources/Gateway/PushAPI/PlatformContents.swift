// The contents of a push for Android and HarmonyOS: Getui's `push_channel.android.ups` and `push_channel.harmony`. The gateway
// checks the fields and stores them; the sender renders them for the vendor of the device's token. The content for a follow-up
// channel is passed on unchanged.

internal import Delivery
internal import JSON
internal import TextForms
internal import Wire

/// A checked content of one platform.
struct PlatformContent {
    var shape: MessageContent.Vendor
    /// The publisher's fields as JSON, without empty values.
    var body: [UInt8]
    /// Whether the content shows or carries all of the live channel's message.
    var carriesAll = false
    /// The texts for the live channel; empty without a notification.
    var title = UnsafeRawBufferPointer(start: nil, count: 0)
    var text = UnsafeRawBufferPointer(start: nil, count: 0)
    var isPassthrough = false

    /// Returns the vendors of the platform that would refuse the content, each with the limit that it exceeds.
    ///
    /// The sender also checks the sizes of the rendered requests, which only it knows.
    var refusals: [(vendor: VendorChannel, reason: String)] {
        func length(_ text: UnsafeRawBufferPointer) -> Int { String(decoding: text, as: UTF8.self).utf16.count }
        return VendorChannel.allCases.filter { $0.platform == shape.channel.platform }.compactMap { vendor in
            let limits = vendor.limits
            if isPassthrough, !limits.hasPassthrough { return (vendor, "it delivers no transmission") }
            for (name, text, limit) in [("title", title, limits.titleLength), ("body", self.text, limits.bodyLength)]
            where limit > 0 && length(text) > limit {
                return (vendor, "\(name) has \(length(text)) characters, at most \(limit)")
            }
            return body.count > limits.contentByteCount
                ? (vendor, "the content has \(body.count) bytes, at most \(limits.contentByteCount)") : nil
        }
    }
}

struct PlatformContents {
    let numbers: NumberTexts
    /// The live channel's payload; `nil` for a notification.
    let transmission: UnsafeRawBufferPointer?
    let notification: JSONValue?

    /// Parses the fields of `ups`; `nil` if it has nothing to send.
    func android(_ android: JSONValue?) throws(GetuiFault) -> PlatformContent? {
        guard let ups = try Self.object(Self.object(android, "android")?["ups"], "ups") else { return nil }
        return try content(of: ups, "ups", channel: .fcm, clickTypes: NotificationRules.clickTypes) {
            (text, writer) throws(GetuiFault) in
            guard let bytes = numbers.bytes(of: text) else { throw .type("ups.transmission") }
            guard let count = scalarCount(bytes) else { throw .invalid("ups.transmission", "not valid Unicode") }
            guard count <= Limits.upsTransmissionCharacterCount else {
                throw .size("ups.transmission", "at most \(Limits.upsTransmissionCharacterCount) characters")
            }
            writer.key("transmission")
            writer.string(bytes: bytes)
            return transmission?.elementsEqual(bytes) ?? false
        }
    }

    /// Parses `push_channel.harmony`; `nil` if it has nothing to send.
    func harmony(_ harmony: JSONValue?) throws(GetuiFault) -> PlatformContent? {
        guard let harmony = try Self.object(harmony, "harmony") else { return nil }
        return try content(of: harmony, "harmony", channel: .harmony, clickTypes: NotificationRules.harmonyClickTypes) {
            (custom, writer) throws(GetuiFault) in
            guard custom.kind == .object else { throw .type("harmony.custom") }
            // Getui's SDK for Java puts the fields under the vendor's name `HW`, and names the data `payload`.
            let named = try Self.object(custom["HW"], "harmony.custom.HW")
            let (fields, path) = (named ?? custom, named == nil ? "harmony.custom" : "harmony.custom.HW")
            guard let type = fields["type"]?.given else { throw .null("\(path).type") }
            guard type.kind == .string else { throw .type("\(path).type") }
            let key: StaticString = fields["data"]?.given == nil && named != nil ? "payload" : "data"
            guard let data = fields[key]?.given else { throw .null("\(path).\(key)") }
            writer.key("custom")
            writer.beginObject()
            writer.key("type")
            writer.value(type)
            writer.key("data")
            try write(data: data, "\(path).\(key)", to: &writer)
            writer.endObject()
            return false
        }
    }

    /// Parses `push_channel.custom`: one follow-up channel with its content and delay; `nil` without a channel.
    ///
    /// The follow-up is sent if the message has not arrived after the delay. The message's `ttl` must therefore exceed the
    /// delay, and each of its strategies must keep the message pending until then (`allowsFollowUp`).
    func followUp(_ custom: JSONValue?, _ settings: PushSettings) throws(GetuiFault) -> PlatformContent? {
        guard let custom = try Self.object(custom, "custom") else { return nil }
        let given = VendorChannel.followUps.compactMap { channel in
            custom[channel.name]?.given.map { (channel, $0) }
        }
        let isKnown = custom.members.allSatisfy { name, value in
            value.isAbsent || VendorChannel.followUps.contains { name.equals($0.name) }
        }
        guard isKnown, given.count <= 1 else {
            throw .parameter("push_channel.custom must have exactly one of sms, mail, voice and custom")
        }
        guard let (channel, fields) = given.first else { return nil }
        let path = "custom.\(channel.name)"
        guard fields.kind == .object else { throw .type(path) }
        guard fields.members.allSatisfy({ name, _ in name.equals("content") || name.equals("delay") }) else {
            throw .parameter("\(path) must have content and delay only")
        }
        guard let content = fields["content"]?.given else { throw .null("\(path).content") }
        guard content.kind == .object || content.kind == .string else { throw .type("\(path).content") }
        let seconds =
            try PushSettings.integer(fields, "delay", Limits.followUpSeconds) ?? Limits.standardFollowUpSeconds
        guard seconds * 1_000 < settings.timeToLive else {
            throw .invalid("\(path).delay", "the message's ttl must be longer")
        }
        let strategies = [settings.strategy] + VendorChannel.vendors.compactMap { settings.vendorStrategies[$0] }
        guard strategies.allSatisfy(\.allowsFollowUp) else {
            throw .parameter("\(path) must be used with the strategies 1 and 2 only")
        }
        var writer = JSONWriter(capacity: 256)
        writer.value(content)
        guard writer.bytes.count <= MessageBounds.followUpByteCount else {
            throw .size(
                "\(path).content",
                "its JSON has \(writer.bytes.count) bytes, at most \(MessageBounds.followUpByteCount)")
        }
        return PlatformContent(
            shape: MessageContent.Vendor(
                channel: channel, tokenKind: .alert, activity: UInt64(seconds * 1_000), pushType: .alert, priority: 10,
                badge: .none, messageIDOffset: -1, badgeOffset: -1), body: writer.bytes)
    }

    /// Parses an object with either `notification` or the platform's other field, which `other` writes.
    ///
    /// `other` returns whether the field carries all of the live channel's message.
    private func content(
        of object: JSONValue, _ path: String, channel: VendorChannel, clickTypes: [StaticString],
        other: (JSONValue, inout JSONWriter) throws(GetuiFault) -> Bool
    ) throws(GetuiFault) -> PlatformContent? {
        let otherName: StaticString = channel == .harmony ? "custom" : "transmission"
        // SDKs send all fields; empty ones do not count.
        let shown = object["notification"].flatMap { $0.isHollow(zero: true) ? nil : $0 }
        let carried = object[otherName].flatMap { $0.isHollow(zero: true) ? nil : $0 }
        guard shown != nil || carried != nil else { return nil }
        guard shown == nil || carried == nil else {
            throw .parameter("\(path) must have exactly one of notification and \(otherName)")
        }
        var content = PlatformContent(
            shape: MessageContent.Vendor(
                channel: channel, tokenKind: .alert, pushType: .alert, priority: 10, badge: .none,
                messageIDOffset: -1, badgeOffset: -1), body: [])
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        if let shown {
            try NotificationRules.check(shown, clickTypes: clickTypes, badges: NotificationRules.vendorBadges)
            try NotificationRules.checkForVendors(shown)
            write(shown, as: "notification", to: &writer, texts: NotificationRules.isText)
            content.title = shown["title"].flatMap { numbers.bytes(of: $0) } ?? content.title
            content.text = shown["body"].flatMap { numbers.bytes(of: $0) } ?? content.text
            content.carriesAll =
                notification.map { NotificationRules.isShown($0, title: content.title, body: content.text, numbers) }
                ?? false
        }
        if let carried {
            content.carriesAll = try other(carried, &writer)
            content.isPassthrough = true
        }
        try writeOptions(object["options"], "\(path).options", to: &writer)
        writer.endObject()
        content.body = writer.bytes
        guard content.body.count <= MessageBounds.vendorBodyByteCount else {
            throw .size(path, "its JSON has \(content.body.count) bytes, at most \(MessageBounds.vendorBodyByteCount)")
        }
        return content
    }

    /// Writes `data`: an object, or a text that contains one.
    private func write(data: JSONValue, _ name: String, to writer: inout JSONWriter) throws(GetuiFault) {
        if data.kind == .object { return writer.value(data) }
        guard let text = data.stringBytes else { throw .type(name) }
        let parser = JSONParser(byteLimit: MessageBounds.vendorBodyByteCount)
        guard let object = try? parser.parse(text), object.kind == .object else {
            throw .invalid(name, "an object, or a text with one")
        }
        writer.value(object)
    }

    private static func object(_ value: JSONValue?, _ name: String) throws(GetuiFault) -> JSONValue? {
        guard let value = value?.given else { return nil }
        guard value.kind == .object else { throw .type(name) }
        return value
    }

    /// Writes an object without its empty values; numbers of the members that `texts` selects are written as texts.
    ///
    /// The first of several equal keys is used, as in the checks.
    private func write(
        _ object: JSONValue, as key: StaticString, to writer: inout JSONWriter,
        texts: (JSONValue) -> Bool = { _ in false }
    ) {
        writer.key(key)
        writer.beginObject()
        var taken: Set<[UInt8]> = []
        for (name, value) in object.members {
            let bytes = name.stringBytes ?? UnsafeRawBufferPointer(start: nil, count: 0)
            guard taken.insert(Array(bytes)).inserted, !value.isAbsent else { continue }
            // SDKs send 0 for a badge that the caller leaves out.
            if name.equals("badge_add_num"), value.isAbsentOrZero { continue }
            writer.key(bytes: bytes)
            if texts(name), let text = numbers.bytes(of: value) {
                writer.string(bytes: text)
            } else {
                writer.value(value)
            }
        }
        writer.endObject()
    }

    /// Getui's vendor names in capitals, and `HARMONY`, a second name of `HOSHW`.
    private static let optionNames = Set(
        VendorChannel.vendors.filter { $0.platform != .apple }.map { "\($0.getuiName)".uppercased() } + ["HARMONY"])

    /// Checks and writes `options`: for each vendor, JSON pointers into the vendor's request, and their values.
    private func writeOptions(_ value: JSONValue?, _ path: String, to writer: inout JSONWriter) throws(GetuiFault) {
        guard let value = try Self.object(value, path) else { return }
        for (vendor, pointers) in value.members where !pointers.isAbsent {
            // Getui's documents also have ALL; the sender uses the options of its vendors only.
            guard let vendor = vendor.string, Self.optionNames.contains(vendor) else { continue }
            let name = "\(path).\(vendor)"
            guard pointers.kind == .object else { throw .type(name) }
            var count = 0
            for (pointer, _) in pointers.members {
                count += 1
                guard let text = pointer.stringBytes, text.first == UInt8(ascii: "/"),
                    text.count <= Limits.optionPointerByteCount
                else {
                    throw .invalid(
                        name,
                        "its keys are JSON pointers like /message/android/urgency, at most "
                            + "\(Limits.optionPointerByteCount) bytes long")
                }
            }
            guard count <= Limits.optionCount else {
                throw .size(name, "at most \(Limits.optionCount) members")
            }
        }
        write(value, as: "options", to: &writer)
    }
}
