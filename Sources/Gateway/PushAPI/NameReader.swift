internal import Delivery
internal import Directory
internal import Wire

/// A validator of an app's aliases, alias types and tags, by Getui's character rules and the configured lengths.
struct NameReader {
    let app: AppKey
    let limits: UserLimits

    static func aliasType(_ text: String, _ limits: UserLimits) throws(GetuiFault) -> String {
        guard text.unicodeScalars.count <= limits.aliasCharacters, text.isEmpty || NameRules.isAliasType(text) else {
            throw .invalid(
                "alias_type",
                "letters, digits, _, - and Chinese characters, at most \(limits.aliasCharacters) of them")
        }
        return text
    }

    func alias(_ text: String, type: String) throws(GetuiFault) -> AliasName {
        guard !text.isEmpty else { throw .empty("alias") }
        guard text.unicodeScalars.count <= limits.aliasCharacters else {
            throw .size("alias", "at most \(limits.aliasCharacters) characters")
        }
        guard NameRules.isAlias(text) else { throw .invalid("alias", "letters, digits, _ and Chinese characters") }
        return AliasName(app: app, text: text, type: type)
    }

    func tag(_ text: String) throws(GetuiFault) -> TagName {
        guard !text.isEmpty else { throw .empty("custom_tag") }
        guard text.unicodeScalars.count <= limits.tagCharacters else {
            throw GetuiFault(
                code: .tagTooLong, message: "custom_tag is too long, at most \(limits.tagCharacters) characters")
        }
        guard NameRules.isTag(text) else { throw .invalid("custom_tag", "no spaces and no control characters") }
        return TagName(app: app, text: text)
    }
}

/// The tags of one device, within the limits; repeated tags count once.
struct TagSet {
    private(set) var tags: [TagName] = []
    private var seen = Set<TagName>()
    private var characters = 0
    private let limits: UserLimits

    init(_ limits: UserLimits) { self.limits = limits }

    mutating func add(_ tag: TagName) throws(GetuiFault) {
        guard seen.insert(tag).inserted else { return }
        characters += tag.text.unicodeScalars.count
        guard tags.count < limits.tagsPerDevice else {
            throw .size("custom_tag", "at most \(limits.tagsPerDevice) tags")
        }
        guard characters <= limits.tagTotalCharacters else {
            throw .size("custom_tag", "at most \(limits.tagTotalCharacters) characters in all")
        }
        tags.append(tag)
    }
}
