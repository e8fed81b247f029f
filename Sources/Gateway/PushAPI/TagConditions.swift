internal import Delivery
internal import Directory
internal import JSON
internal import Wire

/// Parses Getui's tag conditions, `[{"key":…,"values":[…],"opt_type":"and|or|not"}]`, into a tag expression.
///
/// Conditions are ANDed; `opt_type` combines the values of one condition. `phone_type` is compared with the platform in the
/// device's attributes. A device without a platform counts as iOS. `region` and `portrait` are unknown for all devices, so
/// conditions on them are refused.
struct TagConditions {
    let app: App
    let limits: UserLimits
    private var valueCount = 0

    init(app: App, limits: UserLimits) { (self.app, self.limits) = (app, limits) }

    mutating func parse(_ value: JSONValue?) throws(GetuiFault) -> TagExpression {
        guard let value else { throw .null("tag") }
        guard value.kind == .array || value.isEmptyContainer else { throw .type("tag") }
        guard value.hasContent else { throw .empty("tag") }
        var expression = TagExpression()
        var count = 0
        for condition in value.elements {
            count += 1
            guard count <= Limits.tagConditionCount else {
                throw .size("tag", "at most \(Limits.tagConditionCount) conditions")
            }
            guard condition.kind == .object else { throw .type("tag") }
            try add(condition, to: &expression)
        }
        return expression
    }

    private mutating func add(_ condition: JSONValue, to expression: inout TagExpression) throws(GetuiFault) {
        guard let key = condition["key"] else { throw .null("key") }
        guard let keyText = key.string else { throw .type("key") }
        let combination = try Self.combination(condition["opt_type"])
        guard let list = condition["values"] else { throw .null("values") }
        guard list.kind == .array || list.isEmptyContainer else { throw .type("values") }
        guard list.hasContent else { throw .empty("values") }
        var values: [String] = []
        for element in list.elements {
            valueCount += 1
            guard valueCount <= Limits.tagValueCount else {
                throw .size("values", "at most \(Limits.tagValueCount) in one request")
            }
            guard let text = element.lenientText else { throw .type("values") }
            guard !text.isEmpty else { throw .empty("values") }
            values.append(text)
        }
        switch keyText {
        case "custom_tag":
            var tags: [TagName] = []
            for text in values {
                guard text.unicodeScalars.count <= limits.tagCharacters else {
                    throw GetuiFault(
                        code: .tagTooLong, message: "custom_tag is too long, at most \(limits.tagCharacters) characters"
                    )
                }
                guard NameRules.isTag(text) else { throw .invalid("values", "a tag has no spaces") }
                tags.append(TagName(app: app.key, text: text))
            }
            guard expression.add(combination, tags) else {
                throw GetuiFault(
                    code: .tooManyTags, message: "too many tags, at most \(TagExpression.tagLimit) in one request")
            }
        case "phone_type":
            var named: Set<DeviceAttributes.Platform> = []
            for text in values {
                let name = text.lowercased()
                guard let platform = Self.platforms.first(where: { $0.name == name }) else {
                    let names = Self.platforms.map(\.name).joined(separator: ", ")
                    throw .invalid("values", "phone_type is one of \(names)")
                }
                named.insert(platform)
            }
            guard expression.add(platforms: Self.combine(combination, named)) else {
                throw GetuiFault(
                    code: .tooManyTags,
                    message: "too many tags and platforms, at most \(TagExpression.tagLimit) in one request")
            }
        case "region", "portrait":
            throw .invalid(keyText, "it is known of no device here")
        default: throw .invalid("key", "custom_tag or phone_type")
        }
    }

    private static func combination(_ value: JSONValue?) throws(GetuiFault) -> TagExpression.Combination {
        guard let value else { throw .null("opt_type") }
        guard let text = value.string else { throw .type("opt_type") }
        switch text.lowercased() {
        case "and": return .all
        case "or": return .any
        case "not": return .none
        default: throw .invalid("opt_type", "and, or, not")
        }
    }

    private static let platforms = DeviceAttributes.Platform.allCases.filter { $0 != .unknown }

    /// Returns the platforms that satisfy a condition; a device has one platform, so two different values never hold together.
    private static func combine(
        _ combination: TagExpression.Combination, _ named: Set<DeviceAttributes.Platform>
    ) -> Set<DeviceAttributes.Platform> {
        switch combination {
        case .all: named.count == 1 ? named : []
        case .any: named
        case .none: Set(platforms).subtracting(named)
        }
    }
}
