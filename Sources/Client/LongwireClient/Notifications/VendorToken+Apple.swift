public import Wire

extension VendorToken {
    /// Creates an APNs token from the bytes that the system passes to the app.
    ///
    /// - Parameters:
    ///   - bytes: the device token, VoIP token or Live Activity token.
    ///   - kind: the token's kind.
    ///   - environment: Apple's environment, from `Environment.ofApp()` or `Environment.init(provisioningProfile:)`.
    ///   - topic: the app's bundle id.
    ///   - activity: the name of the Live Activity for its token, otherwise empty.
    public init(
        deviceToken bytes: some Sequence<UInt8>, kind: Kind = .alert, environment: Environment, topic: String,
        activity: String = ""
    ) {
        self.init(
            kind: kind, environment: environment, topic: topic, token: ClientState.hex(Array(bytes)), activity: activity
        )
    }

    /// Validates the token and returns it without spaces and angle brackets.
    ///
    /// An APNs token must have 2 to 512 hex digits, and an even number of them. It is returned in lower case. An empty token is
    /// valid: setting it removes other tokens.
    ///
    /// - Throws: `badConfiguration`, with the fault and a remedy. The message does not include the token.
    public func checked() throws(LongwireClientError) -> VendorToken {
        var token: VendorToken
        do throws(TokenFault) {
            token = try cleaned()
        } catch {
            throw LongwireClientError(code: .badConfiguration, message: "\(error.reason)")
        }
        guard channel == .apns, !token.token.isEmpty else { return token }
        let digits = token.token.utf8
        guard digits.allSatisfy(Self.isHexDigit) else {
            throw LongwireClientError(
                code: .badConfiguration,
                message: "the token of APNs has characters other than hex digits; use VendorToken(deviceToken:)")
        }
        guard digits.count % 2 == 0, Limits.tokenDigits.contains(digits.count) else {
            throw LongwireClientError(
                code: .badConfiguration,
                message:
                    "the token of APNs has \(digits.count) hex digits; pass all 1 to 256 bytes of the system's token")
        }
        token.token = token.token.lowercased()
        return token
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
            UInt8(ascii: "A")...UInt8(ascii: "F"):
            true
        default: false
        }
    }
}

extension VendorToken.Environment {
    /// Reads Apple's environment from the app's provisioning profile, which determines the environment of the app's tokens.
    ///
    /// The profile is `embedded.mobileprovision` in the app's bundle on iOS: a signed message (CMS) with a property list
    /// inside. The list's entitlement `aps-environment` is `development` or `production`. An app from the App Store or
    /// TestFlight may have no profile, and its tokens are for production.
    ///
    /// - Parameter profile: the bytes of the profile, or `nil` if the bundle has none.
    /// - Throws: `badConfiguration` for bytes without a property list, without the entitlement or with another value of it.
    public init(provisioningProfile profile: [UInt8]?) throws(LongwireClientError) {
        guard let profile else {
            self = .production
            return
        }
        func refuse(_ message: String) -> LongwireClientError {
            LongwireClientError(code: .badConfiguration, message: message)
        }
        guard profile.count <= Limits.profileByteCount else {
            throw refuse("the provisioning profile has \(profile.count) bytes; pass embedded.mobileprovision")
        }
        guard let list = profile[...].part(from: "<plist", to: "</plist>") else {
            throw refuse("the provisioning profile has no property list; pass the bytes of embedded.mobileprovision")
        }
        guard
            let name = Self.keys.lazy.compactMap({ list.behind($0) }).first,
            let value = name.value(of: "string")
        else {
            throw refuse(
                "the provisioning profile has no aps-environment; add the capability Push Notifications and build again"
            )
        }
        switch value {
        case "development": self = .sandbox
        case "production": self = .production
        default: throw refuse("aps-environment of the profile is \(value.prefix(32)); set the environment yourself")
        }
    }

    /// The entitlement's names on iOS and on macOS.
    private static var keys: [String] {
        ["<key>aps-environment</key>", "<key>com.apple.developer.aps-environment</key>"]
    }
}

extension ArraySlice<UInt8> {
    /// Returns the bytes between the first `start` and the next `end`, or `nil`.
    fileprivate func part(from start: String, to end: String) -> ArraySlice<UInt8>? {
        guard let rest = behind(start), let place = rest.firstOccurrence(of: Array(end.utf8)) else { return nil }
        return rest[..<place]
    }

    /// Returns the bytes after the first occurrence of `text`, or `nil`.
    fileprivate func behind(_ text: String) -> ArraySlice<UInt8>? {
        let bytes = Array(text.utf8)
        return firstOccurrence(of: bytes).map { self[($0 + bytes.count)...] }
    }

    private func firstOccurrence(of bytes: [UInt8]) -> Int? {
        guard let first = bytes.first else { return nil }
        var rest = self
        while let place = rest.firstIndex(of: first) {
            if rest[place...].starts(with: bytes) { return place }
            rest = rest[(place + 1)...]
        }
        return nil
    }

    /// Returns the text of the XML element at the start, after white space; `nil` for another element.
    fileprivate func value(of element: String) -> String? {
        let rest = drop { [0x20, 0x09, 0x0A, 0x0D].contains($0) }
        guard rest.starts(with: "<\(element)>".utf8) else { return nil }
        return rest.part(from: "<\(element)>", to: "</\(element)>").map { String(decoding: $0, as: UTF8.self) }
    }
}
