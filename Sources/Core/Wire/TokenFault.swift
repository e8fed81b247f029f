/// The reason for rejecting a vendor token; the token is rejected alone, and its frame is accepted.
public enum TokenFault: Error, Equatable, Sendable {
    /// The token, its topic or its activity exceeds its limit, or is not valid UTF-8.
    case tooLong, badText
    /// The frame has more tokens than a device may have.
    case tooMany
    /// The token or its topic has characters other than visible ASCII, or the token consists of spaces.
    case characters

    public var reason: StaticString {
        switch self {
        case .tooLong: "a vendor token has more than 512 bytes, its topic more than 255 or its activity more than 64"
        case .badText: "a vendor token's texts are no UTF-8"
        case .tooMany: "a device has at most 16 vendor tokens"
        case .characters: "a vendor token or its topic has characters other than visible ASCII"
        }
    }
}

/// The number of rejected tokens in a frame and the first fault.
package struct RefusedTokens: Equatable, Sendable {
    package private(set) var count = 0
    package private(set) var fault: TokenFault?
    package init() {}

    package mutating func note(_ fault: TokenFault) {
        count += 1
        if self.fault == nil { self.fault = fault }
    }
}

extension VendorToken {
    /// Returns the token without spaces, line ends and the angle brackets of a copied description.
    ///
    /// The token becomes part of a request to the vendor and must not break a line or a path there. An empty token, which removes
    /// other tokens, stays empty. A token of spaces alone is a fault and removes nothing.
    public func cleaned() throws(TokenFault) -> VendorToken {
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
        return cleaned
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
