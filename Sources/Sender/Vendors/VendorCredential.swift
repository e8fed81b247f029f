/// One setting of a vendor's credential.
package struct CredentialField: Sendable, Equatable {
    package var name: String
    /// Whether the value is secret: a separate file holds it, and no log shows it.
    package var isSecret: Bool
    package var isRequired: Bool
    /// The source of the value, for a message about its absence.
    package var hint: String

    init(_ name: String, secret: Bool = false, required: Bool = true, _ hint: String) {
        (self.name, isSecret, isRequired, self.hint) = (name, secret, required, hint)
    }
}

/// An unusable credential, described in one line that includes the remedy and no secret.
package struct CredentialFailure: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String
    init(_ description: String) { self.description = description }
}

/// Builds a vendor's API from the settings of one credential.
package enum VendorCredential {
    /// The maximum bytes of one value; a service account file has about 2,500.
    package static let valueByteCount = 16 << 10

    /// Returns the settings of a vendor's credential.
    ///
    /// `baseURL` and `tokenURL` replace the vendor's addresses, for a region's host or a test double.
    package static func fields(of vendor: Vendor) -> [CredentialField] {
        let base = CredentialField("baseURL", required: false, "the vendor's address for your region")
        let token = CredentialField("tokenURL", required: false, "the vendor's address for access tokens")
        let callback = CredentialField("callbackURL", required: false, "the https address that receives receipts")
        switch vendor {
        case .fcm:
            let hint = "the JSON file from Firebase console, Project settings, Service accounts"
            return [.init("serviceAccount", secret: true, hint), base, token]
        case .hms:
            let hint = "AppGallery Connect, Project settings, General information"
            return [
                .init("appId", hint), .init("appSecret", secret: true, hint),
                .init("receiptId", required: false, "the id of a receipt address in AppGallery Connect"), base, token,
            ]
        case .harmony:
            let hint = "the JSON file from HUAWEI Developers, API Console, Credentials, Service account key"
            return [.init("serviceAccount", secret: true, hint), base]
        case .honor:
            let hint = "Honor's developer console, Push"
            return [
                .init("appId", hint), .init("clientId", hint), .init("clientSecret", secret: true, hint), base, token,
            ]
        case .xiaomi:
            let hint = "Xiaomi's open platform, the app's information"
            return [
                .init("appSecret", secret: true, hint), .init("packageName", hint),
                .init("channelId", required: false, "a notification channel from Xiaomi's console"), callback, base,
            ]
        case .oppo:
            let hint = "OPPO PUSH, Configuration"
            return [.init("appKey", hint), .init("masterSecret", secret: true, hint), callback, base]
        case .vivo:
            let hint = "vivo's open platform, Push, the app's information"
            return [
                .init("appId", hint), .init("appKey", hint), .init("appSecret", secret: true, hint), callback, base,
            ]
        case .meizu:
            let hint = "Flyme push platform, the app's information"
            return [.init("appId", hint), .init("appSecret", secret: true, hint), base]
        case .webPush:
            return [
                .init(
                    "privateKey", secret: true,
                    "a P-256 key: openssl genpkey -algorithm EC -pkeyopt "
                        + "ec_paramgen_curve:P-256"),
                .init("subject", "mailto: or https: address of the operator"),
                .init("allowedHosts", required: false, "hosts of endpoints, separated by commas or blanks"),
            ]
        }
    }

    /// Builds the API from the settings by name; white space at both ends, such as a file's last line end, is ignored.
    package static func makeAPI(
        _ vendor: Vendor, values: [String: [UInt8]]
    ) throws(CredentialFailure) -> any VendorAPI {
        let values = try CredentialValues(vendor, values)
        switch vendor {
        case .fcm: return try FCM(values)
        case .hms:
            return HMS(
                appID: try values.name("appId"), appSecret: try values.secret("appSecret"),
                receiptID: try values.optionalName("receiptId"),
                base: try values.address("baseURL", "https://push-api.cloud.huawei.com"),
                tokenURL: try values.address("tokenURL", "https://oauth-login.cloud.huawei.com/oauth2/v3/token"))
        case .harmony: return try Harmony(values)
        case .honor:
            return Honor(
                appID: try values.name("appId"), clientID: try values.name("clientId"),
                clientSecret: try values.secret("clientSecret"),
                base: try values.address("baseURL", "https://push-api.cloud.honor.com"),
                tokenURL: try values.address("tokenURL", "https://iam.developer.honor.com/auth/token"))
        case .xiaomi:
            return Xiaomi(
                appSecret: try values.secret("appSecret"), packageName: try values.name("packageName"),
                channelID: try values.optionalName("channelId"), callbackURL: try values.callback(limit: 1_024),
                base: try values.address("baseURL", "https://api.xmpush.xiaomi.com"))
        case .oppo:
            return OPPO(
                appKey: try values.name("appKey"), masterSecret: try values.secret("masterSecret"),
                callbackURL: try values.callback(limit: 200),
                base: try values.address("baseURL", "https://api.push.oppomobile.com"))
        case .vivo:
            guard let appID = Int64(try values.name("appId")), appID > 0 else { throw values.bad("appId", "a number") }
            return Vivo(
                appID: appID, appKey: try values.name("appKey"), appSecret: try values.secret("appSecret"),
                callbackURL: try values.callback(limit: 128),
                base: try values.address("baseURL", "https://api-push.vivo.com.cn"))
        case .meizu:
            return Meizu(
                appID: try values.name("appId"), appSecret: try values.secret("appSecret"),
                base: try values.address("baseURL", "https://server-api-push.meizu.com"))
        case .webPush: return try WebPush(values)
        }
    }
}
