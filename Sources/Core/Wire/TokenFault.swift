/// The reason for rejecting a vendor token; the token is rejected alone, and its frame is accepted.
public enum TokenFault: Error, Equatable, Sendable, Codable {
    /// The token, its topic or its activity exceeds its limit, or is not valid UTF-8.
    case tooLong, badText
    /// The frame has more tokens than a device may have.
    case tooMany
    /// The token or its topic has characters other than visible ASCII, or the token consists of spaces.
    case characters
    /// The kind exists only for tokens of Apple.
    case kind
    /// A Web Push token is not a subscription in the form `ENDPOINT#P256DH.AUTH`.
    case subscription
    /// The channel is a follow-up channel, which uses no tokens of devices.
    case followUp

    public var reason: StaticString {
        switch self {
        case .tooLong: "a vendor token has more than 1,024 bytes, its topic more than 255 or its activity more than 64"
        case .badText: "a vendor token's texts are no UTF-8"
        case .tooMany: "a device has at most 16 vendor tokens"
        case .characters: "a vendor token or its topic has characters other than visible ASCII"
        case .kind: "only tokens of APNs have another kind than ALERT"
        case .subscription: "a Web Push token is not ENDPOINT#P256DH.AUTH with an https endpoint"
        case .followUp: "a follow-up channel has no tokens"
        }
    }
}

/// The number of rejected tokens in a frame and the first fault.
package struct RefusedTokens: Equatable, Sendable, Codable {
    package private(set) var count = 0
    package private(set) var fault: TokenFault?
    package init() {}

    package mutating func note(_ fault: TokenFault) {
        count += 1
        if self.fault == nil { self.fault = fault }
    }
}

extension VendorToken {
    /// Returns the token without spaces, line ends and angle brackets, which apps may copy from a description of the bytes.
    ///
    /// The token becomes part of a request to the vendor and must not break a line or a path there. An empty token, which removes
    /// other tokens, stays empty. A token of spaces alone is a fault and removes nothing.
    public func cleaned() throws(TokenFault) -> VendorToken {
        guard !channel.isFollowUp else { throw .followUp }
        guard channel == .apns || kind == .alert else { throw .kind }
        func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { (0x21...0x7E).contains($0) } }
        var cleaned = self
        if !isPlain(token) || token.utf8.contains(where: { $0 == UInt8(ascii: "<") || $0 == UInt8(ascii: ">") }) {
            cleaned.token = ""
            for scalar in token.unicodeScalars
            where !scalar.properties.isWhitespace && scalar != "<" && scalar != ">" {
                cleaned.token.unicodeScalars.append(scalar)
            }
            guard !cleaned.token.isEmpty else { throw .characters }
        }
        if !isPlain(topic) {
            cleaned.topic = ""
            for scalar in topic.unicodeScalars where !scalar.properties.isWhitespace {
                cleaned.topic.unicodeScalars.append(scalar)
            }
        }
        guard isPlain(cleaned.token), isPlain(cleaned.topic) else { throw .characters }
        guard cleaned.token.utf8.count <= Limits.tokenByteCount, cleaned.topic.utf8.count <= Limits.topicByteCount,
            cleaned.activity.utf8.count <= Limits.activityByteCount
        else { throw .tooLong }
        guard channel != .webPush || cleaned.token.isEmpty || Self.isSubscription(cleaned.token) else {
            throw .subscription
        }
        return cleaned
    }

    /// Returns whether a text has the form `ENDPOINT#P256DH.AUTH`: an https URL, then a key of 65 bytes and one of 16 bytes.
    private static func isSubscription(_ text: String) -> Bool {
        let parts = text.utf8.split(separator: UInt8(ascii: "#"), omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].count > 8, parts[0].starts(with: "https://".utf8) else { return false }
        let keys = parts[1].split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        func isBase64URL(_ key: Substring.UTF8View) -> Bool {
            key.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
        }
        return keys.count == 2 && keys[0].count == 87 && keys[1].count == 22 && keys.allSatisfy(isBase64URL)
    }
}

extension [VendorToken] {
    package mutating func clean(_ refused: inout RefusedTokens) {
        var kept: [VendorToken] = []
        for token in self {
            do throws(TokenFault) {
                kept.append(try token.cleaned())
            } catch {
                refused.note(error)
            }
        }
        self = kept
    }
}
