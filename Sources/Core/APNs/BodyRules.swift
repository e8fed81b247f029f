// The value forms that Apple reads in a push's `aps`, and conversions from other forms. The gateway converts bodies to these
// forms. The sender and the test server read the resulting facts.

/// A value in `aps`, reduced to the properties that rules check.
package enum BodyValue: Sendable, Equatable {
    case null
    case flag(Bool)
    case integer(Int64)
    case number(Double)
    case text(String)
    /// A text of more than `Bounds.shortTextByteCount` bytes; no rule reads its content.
    case longText
    case list(isEmpty: Bool)
    case object(isEmpty: Bool)
}

/// The replacement for a given value in the body sent to Apple.
package enum BodyReading: Sendable {
    case asGiven
    case integer(Int64)
    case number(Double)
    case text(String)
    /// `{}`, because PHP encodes an empty object as `[]`.
    case emptyObject
    /// The members of an object, converted by the forms of these keys; other members are sent unchanged.
    case members(of: [BodyKey])
    /// The elements of a list, each converted to this form.
    case elements(of: BodyForm)
    /// The value is empty and is omitted.
    case leftOut
    /// The value cannot be converted; the text describes the expected form.
    case refused(StaticString)
}

/// The value forms that Apple reads.
package enum BodyForm: Sendable {
    case flag, badge, count, score, anyScore, volume, seconds, text, localizedText, level, event
    case sound, alert, activityAlert, texts, object

    package func reading(of value: BodyValue) -> BodyReading {
        if value == .null { return .leftOut }
        switch self {
        case .flag: return Self.flag(value)
        case .badge: return Self.integer(value, 0...Int64(Int32.max), "a whole number from 0; auto_badge counts")
        case .count: return Self.integer(value, 0...Int64(Int32.max), "a whole number from 0")
        case .score, .volume: return Self.number(value, 0...1, "a number from 0 to 1")
        case .anyScore: return Self.number(value, -Bounds.anyScore...Bounds.anyScore, "a number")
        case .seconds: return Self.integer(value, 0...Bounds.latestSecond, "a Unix time in seconds")
        case .text: return Self.text(value)
        case .localizedText:
            if case .object = value { return .asGiven }
            return Self.text(value)
        case .level:
            return Self.word(
                value, ["passive", "active", "time-sensitive", "critical"],
                "passive, active, time-sensitive or critical")
        case .event: return Self.word(value, ["start", "update", "end"], "start, update or end")
        case .sound: return Self.sound(value)
        case .alert, .activityAlert:
            switch value {
            case .text, .longText: return .asGiven
            case .object: return .members(of: self == .alert ? BodyKey.ofAlert : BodyKey.ofActivityAlert)
            default: return Self.leftOutIfEmpty(value, "a text or an object")
            }
        case .texts:
            if case .list = value { return .elements(of: .text) }
            return Self.leftOutIfEmpty(value, "a list of texts")
        case .object:
            switch value {
            case .object: return .asGiven
            case .list(isEmpty: true): return .emptyObject
            default: return Self.leftOutIfEmpty(value, "an object")
            }
        }
    }

    /// Omits empty values, which SDKs send for members that were not filled in, and refuses others.
    private static func leftOutIfEmpty(_ value: BodyValue, _ wanted: StaticString) -> BodyReading {
        switch value {
        case .null, .text(""), .list(isEmpty: true), .object(isEmpty: true): .leftOut
        default: .refused(wanted)
        }
    }

    private static func flag(_ value: BodyValue) -> BodyReading {
        switch value {
        case .integer(0), .integer(1): return .asGiven
        case .flag(let isSet): return .integer(isSet ? 1 : 0)
        case .number(0): return .integer(0)
        case .number(1): return .integer(1)
        case .text(let text) where text == "1" || text.lowercased() == "true": return .integer(1)
        case .text(let text) where text == "0" || text.lowercased() == "false": return .integer(0)
        default: return leftOutIfEmpty(value, "1 or absent")
        }
    }

    private static func integer(
        _ value: BodyValue, _ range: ClosedRange<Int64>, _ wanted: StaticString
    ) -> BodyReading {
        let found: Int64?
        switch value {
        case .integer(let number): return range.contains(number) ? .asGiven : .refused(wanted)
        case .number(let number): found = Int64(exactly: number.rounded(.towardZero))
        // A text with a sign is refused: elsewhere, a signed badge is an increment.
        case .text(let text) where text.utf8.first.map { $0 >= 0x30 && $0 <= 0x39 } == true: found = Int64(text)
        default: return leftOutIfEmpty(value, wanted)
        }
        guard let found, range.contains(found) else { return .refused(wanted) }
        return .integer(found)
    }

    private static func number(
        _ value: BodyValue, _ range: ClosedRange<Double>, _ wanted: StaticString
    ) -> BodyReading {
        switch value {
        case .integer(let number): return range.contains(Double(number)) ? .asGiven : .refused(wanted)
        case .number(let number): return range.contains(number) ? .asGiven : .refused(wanted)
        case .text(let text) where isDecimal(text):
            guard let number = Double(text), range.contains(number) else { return .refused(wanted) }
            return .number(number)
        default: return leftOutIfEmpty(value, wanted)
        }
    }

    /// Whether the text has only digits, signs and points; `inf` and `0x1` are excluded.
    private static func isDecimal(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x30...0x39).contains($0) || $0 == 0x2D || $0 == 0x2E }
    }

    private static func text(_ value: BodyValue) -> BodyReading {
        switch value {
        case .text, .longText: .asGiven
        case .integer(let number): .text(String(number))
        case .number(let number) where number.isFinite: .text("\(number)")
        default: leftOutIfEmpty(value, "a text")
        }
    }

    private static func word(_ value: BodyValue, _ words: [String], _ wanted: StaticString) -> BodyReading {
        if case .text(let text) = value, words.contains(text) { return .asGiven }
        return leftOutIfEmpty(value, wanted)
    }

    private static func sound(_ value: BodyValue) -> BodyReading {
        switch value {
        // Getui's name for no sound. A phone without such a file would play its default sound.
        case .text(""), .text("com.gexin.ios.silence"): .leftOut
        case .object(isEmpty: false): .members(of: BodyKey.ofSound)
        case .object, .list: leftOutIfEmpty(value, "a text or an object")
        case .flag: .refused("a text or an object")
        default: text(value)
        }
    }
}

extension BodyReading {
    /// Returns the value sent to Apple, or `nil` if it is omitted.
    package func sent(for given: BodyValue) -> BodyValue? {
        switch self {
        case .asGiven: given
        case .integer(let number): .integer(number)
        case .number(let number): .number(number)
        case .text(let text): .text(text)
        case .emptyObject: .object(isEmpty: true)
        case .members: .object(isEmpty: false)
        case .elements: .list(isEmpty: false)
        case .leftOut, .refused: nil
        }
    }
}

/// A key that Apple reads, with the form of its value.
package struct BodyKey: Sendable {
    package let name: StaticString
    package let form: BodyForm
    fileprivate let fact: Fact?

    fileprivate enum Fact {
        case alert, badge, sound, contentAvailable, event, timestamp, contentState, attributesType, attributes
    }

    private init(_ name: StaticString, _ form: BodyForm, _ fact: Fact? = nil) {
        (self.name, self.form, self.fact) = (name, form, fact)
    }

    private static let common = [
        BodyKey("badge", .badge, .badge), BodyKey("sound", .sound, .sound),
        BodyKey("content-available", .flag, .contentAvailable), BodyKey("mutable-content", .flag),
        BodyKey("category", .text), BodyKey("thread-id", .text), BodyKey("target-content-id", .text),
        BodyKey("filter-criteria", .text), BodyKey("interruption-level", .level), BodyKey("url-args", .texts),
    ]
    /// The keys of an alert, background or VoIP push.
    package static let ofNotification =
        [BodyKey("alert", .alert, .alert), BodyKey("relevance-score", .score)] + common
    /// The keys of a Live Activity push.
    package static let ofActivity =
        [
            BodyKey("alert", .activityAlert, .alert), BodyKey("relevance-score", .anyScore),
            BodyKey("event", .event, .event), BodyKey("timestamp", .seconds, .timestamp),
            BodyKey("content-state", .object, .contentState), BodyKey("stale-date", .seconds),
            BodyKey("dismissal-date", .seconds), BodyKey("attributes-type", .text, .attributesType),
            BodyKey("attributes", .object, .attributes), BodyKey("input-push-token", .flag),
            BodyKey("input-push-channel", .text),
        ] + common

    static let ofAlert =
        [
            "title", "subtitle", "body", "launch-image", "loc-key", "title-loc-key", "subtitle-loc-key",
            "action-loc-key", "summary-arg",
        ].map { BodyKey($0, .text) }
        + ["loc-args", "title-loc-args", "subtitle-loc-args"].map { BodyKey($0, .texts) }
        + [BodyKey("summary-arg-count", .count)]
    static let ofActivityAlert = [
        BodyKey("title", .localizedText), BodyKey("body", .localizedText), BodyKey("sound", .sound),
    ]
    static let ofSound = [BodyKey("critical", .flag), BodyKey("name", .text), BodyKey("volume", .volume)]
}

/// The facts about a body that the rules of its push type check.
package struct BodyFacts: Sendable, Equatable {
    package var isObject = false
    package var hasAps = false
    package var hasAlert = false
    package var hasSound = false
    package var hasBadge = false
    package var isContentAvailable = false
    package var event: String?
    package var hasTimestamp = false
    package var hasContentState = false
    package var hasAttributesType = false
    package var hasAttributes = false

    package init() {}

    /// Records a member of `aps` with the value sent to Apple.
    package mutating func note(_ key: BodyKey, _ value: BodyValue) {
        guard let fact = key.fact, value != .null else { return }
        switch (fact, value) {
        case (.alert, _): hasAlert = true
        case (.badge, _): hasBadge = true
        case (.sound, _): hasSound = true
        case (.contentAvailable, _): isContentAvailable = value == .integer(1)
        case (.event, .text(let text)): event = text
        case (.timestamp, .integer): hasTimestamp = true
        case (.contentState, .object): hasContentState = true
        case (.attributesType, .text), (.attributesType, .longText): hasAttributesType = true
        case (.attributes, .object): hasAttributes = true
        default: break
        }
    }
}
