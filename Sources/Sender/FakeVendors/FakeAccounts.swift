package import Cryptography
internal import TextForms

/// The test credentials that the fakes know, and the device tokens of Web Push.
///
/// Ids and secrets are constants: they protect nothing. The keys are in files, so that they survive a restart.
package struct FakeAccounts: Sendable {
    package static let appID = "100001"
    package static let clientID = "200001"
    package static let secret = "longwire-fake-secret"
    package static let package = "com.example.app"
    package static let project = "longwire-fake"
    static let account = "sender@longwire-fake.iam.gserviceaccount.com"
    static let keyID = "longwire-fake-key"

    /// The host name in Web Push endpoints, with the two labels that the sender requires.
    package static let pushHost = "push.localhost"

    package var port: UInt16
    /// The key of the service accounts of FCM and HarmonyOS.
    let servicePEM: [UInt8]
    let service: RSASigningKey
    let vapidPEM: [UInt8]
    let vapid: SigningKey
    let vapidPoint: [UInt8]
    /// The key and the secret of all simulated browsers.
    let browser: AgreementKey
    let browserSecret: [UInt8]

    package init(
        service: [UInt8], vapid: [UInt8], browser: [UInt8], port: UInt16
    ) throws(TLSFailure) {
        (servicePEM, vapidPEM, self.port) = (service, vapid, port)
        self.service = try RSASigningKey(pem: service, name: "the service accounts' key")
        self.vapid = try SigningKey(pem: vapid, name: "the VAPID key")
        guard let point = self.vapid.publicPoint, let key = AgreementKey(pem: browser) else {
            // `SigningKey` reads the same text and throws an error that names the fault.
            _ = try SigningKey(pem: browser, name: "the browsers' key")
            throw TLSFailure("out of memory")
        }
        (vapidPoint, self.browser) = (point, key)
        browserSecret = Array(SHA256.digest(browser).bytes.prefix(16))
    }

    var base: String { "https://localhost:\(port)" }
    package var pushOrigin: String { "https://\(Self.pushHost):\(port)" }

    /// Returns the device token of a simulated browser; the id may begin with a fault prefix such as `dead`, as in all fakes.
    package func pushToken(_ id: String) -> String {
        "\(pushOrigin)/push/\(id)#\(Base64.encode(browser.publicPoint, .url)).\(Base64.encode(browserSecret, .url))"
    }

    /// Returns the settings of the sender's credential for a vendor.
    package func settings(of vendor: FakeVendor) -> [(name: String, value: String)] {
        let (base, app, secret) = (("baseURL", base), ("appId", Self.appID), ("appSecret", Self.secret))
        switch vendor {
        case .fcm, .harmony: return [("serviceAccount", serviceAccount(vendor)), base]
        case .hms: return [app, secret, base, ("tokenURL", base.1 + "/oauth2/v3/token")]
        case .honor:
            return [
                app, ("clientId", Self.clientID), ("clientSecret", Self.secret), base,
                ("tokenURL", base.1 + "/auth/token"),
            ]
        case .xiaomi: return [secret, ("packageName", Self.package), ("channelId", "fake-channel"), base]
        case .oppo: return [("appKey", Self.clientID), ("masterSecret", Self.secret), base]
        case .vivo: return [app, ("appKey", Self.clientID), secret, base]
        case .meizu: return [app, secret, base]
        case .webPush:
            return [
                ("privateKey", String(decoding: vapidPEM, as: UTF8.self)), ("subject", "mailto:trial@example.com"),
                ("allowedHosts", "\(Self.pushHost):\(port)"),
            ]
        }
    }

    /// Returns the JSON file of a service account, in the vendor's form.
    private func serviceAccount(_ vendor: FakeVendor) -> String {
        let key = JSONString.quoted(String(decoding: servicePEM, as: UTF8.self))
        let names =
            vendor == .fcm
            ? "\"client_email\":\"\(Self.account)\",\"private_key_id\":\"\(Self.keyID)\",\"token_uri\":\"\(base)/token\""
            : "\"sub_account\":\"\(Self.clientID)\",\"key_id\":\"\(Self.keyID)\""
        return "{\"project_id\":\"\(Self.project)\",\(names),\"private_key\":\(key)}\n"
    }

    /// The values of a sender's configuration that belong in files.
    private static let fileValues = ["serviceAccount", "privateKey"]

    /// The beginning of `sender.json5`, by which the fake recognises its own file.
    package static let configurationMark = "// Written by `longwire-sender fake`"

    /// Returns the files of a configuration that makes a sender use the fakes: `sender.json5`, and the files that it names.
    ///
    /// `apple` has further lines of the configuration, and `appleCredential` is Apple's entry in its credentials.
    package func files(gateway: String, apple: String, appleCredential: String) -> [(name: String, text: String)] {
        var files: [(name: String, text: String)] = []
        var credentials = "    \(appleCredential),\n"
        for vendor in FakeVendor.allCases {
            var fields = ["vendor: \"\(vendor.rawValue)\"", "name: \"fake\""]
            for (name, value) in settings(of: vendor) {
                guard Self.fileValues.contains(name) else {
                    fields.append("\(name): \(JSONString.quoted(value))")
                    continue
                }
                let file = name == "privateKey" ? "vapid.pem" : "\(vendor.rawValue).json"
                fields.append("\(name)File: \"\(file)\"")
                if name != "privateKey" { files.append((file, value)) }
            }
            credentials += "    {\(fields.joined(separator: ", "))},\n"
        }
        let trust = FakeVendor.allCases.map { "    \($0.rawValue): {authoritiesFile: \"certificate.pem\"},\n" }.joined()
        files.append(
            (
                "sender.json5",
                """
                \(Self.configurationMark) at each start. Copy it before you change it.
                {
                  gateway: {url: \(JSONString.quoted(gateway)), tokenFile: "sender-token"},
                \(apple)
                  credentials: [
                \(credentials)  ],
                  vendors: {
                \(trust)  },
                }

                """
            ))
        return files
    }
}
