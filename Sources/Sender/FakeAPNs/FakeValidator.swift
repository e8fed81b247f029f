internal import APNs
internal import Cryptography
internal import JSON
internal import TextForms

struct FakeRequest: Equatable {
    var method = ""
    var path = ""
    var fields = FakeFields()
    var hasRepeatedField = false
    var body: [UInt8] = []

    var token: String { path.hasPrefix("/3/device/") ? String(path.dropFirst(10)) : "" }
}

/// The header fields of a request; a linear search is faster than a dictionary for so few.
struct FakeFields: Equatable {
    private struct Field: Equatable {
        var name: String
        var value: String
    }

    private var list: [Field] = []

    subscript(name: String) -> String? {
        get { list.first { $0.name == name }?.value }
        set {
            list.removeAll { $0.name == name }
            if let newValue { list.append(Field(name: name, value: newValue)) }
        }
    }
}

/// The checks that Apple documents.
///
/// The rules about collapse ids, sizes and contents are those of the module APNs, which the gateway uses, too. No other rule is
/// shared with the sender, so that an error of the sender is detected here.
struct FakeValidator {
    var environment: Environment
    /// The known keys; without keys, provider tokens are read but not verified.
    var keys: [FakeKey]
    /// Whether a request needs a provider token; false for connections with a client certificate.
    var needsProviderToken = true
    /// The minimum time between two tokens of a key, in seconds.
    var tokenInterval: Int64 = 0
    private var lastTokens: [String: (text: String, since: Int64)] = [:]
    /// Verified provider tokens by their text, because a sender repeats the same token in each request.
    private var verified: [String: ProviderClaims] = [:]
    private static let verifiedLimit = 1_000

    private struct ProviderClaims {
        var keyID: String
        var issuedAt: Int64
        /// The key, or `nil` if the fake has no keys.
        var key: FakeKey?
    }

    /// The contents of the last provider token, cached because many requests carry the same one.
    private var lastRead: (text: String, keyID: String, issuedAt: Int64) = ("", "", 0)

    init(environment: Environment, keys: [FakeKey]) { (self.environment, self.keys) = (environment, keys) }

    /// Returns the status and reason of a refusal, or `nil` for a valid request.
    ///
    /// `now` is in Unix seconds.
    mutating func refusal(of request: FakeRequest, now: Int64, parser: JSONParser) -> (Int, String)? {
        if request.method != "POST" { return (405, "MethodNotAllowed") }
        if request.hasRepeatedField { return (400, "DuplicateHeaders") }
        guard request.path.hasPrefix("/3/device/") else { return (404, "BadPath") }
        if request.token.isEmpty { return (400, "MissingDeviceToken") }
        guard let count = hexByteCount(request.token), count >= 2 else { return (400, "BadDeviceToken") }
        let topic = request.fields["apns-topic"] ?? ""
        if let refusal = authorization(request, topic, now) { return refusal }
        if topic.isEmpty { return (400, "MissingTopic") }
        if let refusal = fields(request, topic) { return refusal }
        return body(request, parser)
    }

    /// Returns the key id and the signing time, in Unix seconds, of a request's provider token, or `nil` if it is unreadable.
    mutating func providerToken(of request: FakeRequest) -> (keyID: String, issuedAt: Int64)? {
        guard let text = request.fields["authorization"] else { return nil }
        if text != lastRead.text {
            let parts = text.utf8.dropFirst(7).split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
            guard parts.count == 3, let keyID = members(of: parts[0])?["kid"],
                let issued = members(of: parts[1])?["iat"].flatMap({ Int64($0) })
            else { return nil }
            lastRead = (text, keyID, issued)
        }
        return (lastRead.keyID, lastRead.issuedAt)
    }

    private mutating func authorization(_ request: FakeRequest, _ topic: String, _ now: Int64) -> (Int, String)? {
        guard let text = request.fields["authorization"] else {
            return needsProviderToken ? (403, "MissingProviderToken") : nil
        }
        guard let claims = verified[text] ?? claims(of: text) else {
            return (403, text.lowercased().hasPrefix("bearer ") ? "InvalidProviderToken" : "MissingProviderToken")
        }
        if let key = claims.key {
            if !key.environments.contains(environment) { return (403, "BadEnvironmentKeyIdInToken") }
            if !key.topics.isEmpty, !key.topics.contains(bare(topic)) { return (400, "TopicDisallowed") }
        }
        let (keyID, issued) = (claims.keyID, claims.issuedAt)
        // Tokens are valid for an hour. A time up to five minutes in the future is accepted, because clocks differ.
        if issued < now - 3_600 { return (403, "ExpiredProviderToken") }
        if issued > now + 300 { return (403, "InvalidProviderToken") }
        if tokenInterval > 0 {
            if let last = lastTokens[keyID], last.text != text, now < last.since + tokenInterval {
                return (429, "TooManyProviderTokenUpdates")
            }
            if lastTokens[keyID]?.text != text { lastTokens[keyID] = (text, now) }
        }
        return nil
    }

    /// Reads and verifies a new provider token; returns `nil` if it is invalid or not signed by a known key.
    private mutating func claims(of text: String) -> ProviderClaims? {
        guard text.lowercased().hasPrefix("bearer ") else { return nil }
        let parts = text.utf8.dropFirst(7).split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let head = members(of: parts[0]), let claims = members(of: parts[1]),
            let signature = Base64.decode(parts[2], .url), head["alg"] == "ES256", let keyID = head["kid"],
            let team = claims["iss"], let issued = claims["iat"].flatMap({ Int64($0) })
        else { return nil }
        let key = keys.first { $0.keyID == keyID && $0.teamID == team }
        if !keys.isEmpty {
            let signed = Array(parts[0]) + [UInt8(ascii: ".")] + Array(parts[1])
            guard let key, key.key.isSignature(signature, of: signed) else { return nil }
        }
        if verified.count >= Self.verifiedLimit { verified = [:] }
        let found = ProviderClaims(keyID: keyID, issuedAt: issued, key: key)
        verified[text] = found
        return found
    }

    private func fields(_ request: FakeRequest, _ topic: String) -> (Int, String)? {
        if let id = request.fields["apns-id"], !id.isUUID { return (400, "BadMessageId") }
        if let text = request.fields["apns-expiration"] {
            guard let time = Int64(text), time >= 0 else { return (400, "BadExpirationDate") }
        }
        let type = request.fields["apns-push-type"] ?? "alert"
        let suffixes = ["voip": ".voip", "liveactivity": ".push-type.liveactivity", "alert": "", "background": ""]
        guard let suffix = suffixes[type] else { return (400, "InvalidPushType") }
        if bare(topic) + suffix != topic { return (400, "InvalidPushType") }
        if let text = request.fields["apns-priority"] {
            guard ["1", "5", "10"].contains(text) else { return (400, "BadPriority") }
            if type == "background", text == "10" { return (400, "BadPriority") }
        }
        if let collapse = request.fields["apns-collapse-id"],
            let breach = RequestRules.breach(ofCollapseID: collapse.utf8)
        {
            return (400, "\(breach.reason)")
        }
        return nil
    }

    private func body(_ request: FakeRequest, _ parser: JSONParser) -> (Int, String)? {
        if request.body.isEmpty { return (400, "PayloadEmpty") }
        guard let type = PushType(rawValue: request.fields["apns-push-type"] ?? "alert") else {
            return (400, "InvalidPushType")
        }
        if request.body.count > Bounds.bodyByteCount(of: type) { return (413, "PayloadTooLarge") }
        let found = request.body.withUnsafeBytes { bytes in
            (try? parser.parse(bytes)).map { BodyFacts($0, isActivity: type == .liveactivity) }
        }
        guard let facts = found, facts.isObject else { return (400, "PayloadEmpty") }
        // The kind of the device token follows from the push type and the event.
        let kind: TokenKind
        switch type {
        case .alert, .background: kind = .alert
        case .voip: kind = .voip
        case .liveactivity: kind = facts.event == "start" ? .liveActivityStart : .liveActivity
        }
        return RequestRules.breach(of: facts, type, kind).map { (400, "\($0.reason)") }
    }

    private func bare(_ topic: String) -> String {
        for suffix in [".voip", ".push-type.liveactivity"] where topic.hasSuffix(suffix) {
            return String(topic.dropLast(suffix.count))
        }
        return topic
    }

    /// Returns the app in the path of a channel request, or `nil` for any other path.
    ///
    /// Management connections have the paths of channels, and other connections the path of broadcasts.
    static func channelTopic(of request: FakeRequest, isManaged: Bool) -> String? {
        let parts = request.path.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
        if isManaged {
            guard parts.count == 5, parts[0].isEmpty, parts[1...2] == ["1", "apps"],
                parts[4] == "channels" || parts[4] == "all-channels"
            else { return nil }
            return parts[3]
        }
        return parts.count == 5 && parts[0].isEmpty && parts[1...3] == ["4", "broadcasts", "apps"] ? parts[4] : nil
    }

    /// Returns the refusal of a channel request, as `refusal` does, for its headers and provider token only.
    mutating func channelRefusal(of request: FakeRequest, topic: String, now: Int64) -> (Int, String)? {
        request.hasRepeatedField ? (400, "DuplicateHeaders") : authorization(request, topic, now)
    }

    private func hexByteCount(_ text: String) -> Int? {
        text.utf8.count % 2 == 0 && text.utf8.allSatisfy { $0.isHexDigit } ? text.utf8.count / 2 : nil
    }

    /// Returns the members of a JWT part, numbers as text.
    private func members(of part: some Collection<UInt8>) -> [String: String]? {
        guard let bytes = Base64.decode(part, .url) else { return nil }
        let parser = JSONParser()
        return bytes.withUnsafeBytes { bytes in
            guard let value = try? parser.parse(bytes), value.kind == .object else { return nil }
            var found: [String: String] = [:]
            for (key, member) in value.members {
                found[key.string ?? ""] = member.string ?? member.integer.map { "\($0)" }
            }
            return found
        }
    }
}
