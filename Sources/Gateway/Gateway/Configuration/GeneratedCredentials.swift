package import Configuration

/// The generated defaults for missing settings: the demo app and the admin listener's token.
///
/// Both are stored in the data folder, so that restarts and the command line tool use the same values.
package struct GeneratedCredentials: Equatable, Sendable {
    /// The contents of `demo.json` in the data folder, mode 0600; its addresses are updated at each start.
    package struct Demo: Equatable, Sendable {
        package var appID: String
        package var appKey: String
        package var appSecret: Secret
        package var masterSecret: Secret
        package var adminToken: Secret
        package var deviceAddress = ""
        package var httpAddress = ""
        package var adminAddress = ""
        package var sendersAddress = ""
    }

    /// The demo app; set if `usesDemoApp` is.
    package var demo: Demo?
    /// The admin token, set if no credentials are configured; it is never written to the log.
    package var adminToken: Secret?

    package static let demoFileName = "demo.json"
    package static let adminTokenFileName = "admin-token"

    /// Loads or creates the missing credentials and the data folder, and adds the credentials to `configuration`.
    package static func complete(
        _ configuration: inout GatewayConfiguration, random: inout some RandomNumberGenerator
    ) throws(ConfigurationError) -> GeneratedCredentials {
        var generated = GeneratedCredentials()
        do throws(FileText.Failure) {
            try FileText.makeFolder(configuration.storePath)
            if configuration.usesDemoApp {
                let demo = try Self.demo(in: configuration.storePath, random: &random)
                generated.demo = demo
                guard configuration.app(id: demo.appID) == nil else {
                    throw FileText.Failure(
                        path: configuration.storePath, reason: "the demo app's id is also an app of the configuration")
                }
                configuration.apps.append(
                    AppConfiguration(
                        appID: demo.appID, appKey: demo.appKey, appSecrets: [demo.appSecret],
                        masterSecrets: [demo.masterSecret]))
                configuration.apps[configuration.apps.count - 1].apnsTopic = "com.example.longwire-demo"
            }
            if configuration.credentials.isEmpty {
                let token: Secret
                if let demo = generated.demo {
                    token = demo.adminToken
                } else {
                    token = try Self.adminToken(in: configuration.storePath, random: &random)
                }
                generated.adminToken = token
                configuration.credentials = [
                    Credential(name: "generated", tokens: [token], apps: nil, permissions: [.admin])
                ]
            }
        } catch {
            let problem = ConfigurationProblem(path: "", position: nil, text: error.description)
            throw ConfigurationError(file: configuration.file, problems: [problem])
        }
        return generated
    }

    private static func demo(
        in folder: String, random: inout some RandomNumberGenerator
    ) throws(FileText.Failure) -> Demo {
        let path = "\(folder)/\(demoFileName)"
        do throws(FileText.Failure) {
            let contents = try FileText.read(path, limit: ConfigurationLimits.secretFileByteCount)
            guard let demo = Demo(json: contents.bytes) else {
                throw FileText.Failure(path: path, reason: "not a demo file of Longwire; remove it to have a new one")
            }
            return demo
        } catch {
            guard error.isAbsent else { throw error }
        }
        let demo = Demo(
            appID: "demo" + text(18, &random), appKey: text(22, &random), appSecret: Secret(text(32, &random)),
            masterSecret: Secret(text(32, &random)), adminToken: Secret(text(40, &random)))
        try FileText.replacePrivately(path, with: Array(demo.json.utf8))
        return demo
    }

    private static func adminToken(
        in folder: String, random: inout some RandomNumberGenerator
    ) throws(FileText.Failure) -> Secret {
        let path = "\(folder)/\(adminTokenFileName)"
        do throws(FileText.Failure) {
            let contents = try FileText.read(path, limit: ConfigurationLimits.secretFileByteCount)
            let text = String(decoding: contents.bytes.filter { $0 > 0x20 }, as: UTF8.self)
            guard SecretReader.isVisible(text, 16...256) else {
                throw FileText.Failure(path: path, reason: "not a token; remove it to have a new one")
            }
            return Secret(text)
        } catch {
            guard error.isAbsent else { throw error }
        }
        let token = text(40, &random)
        try FileText.replacePrivately(path, with: Array((token + "\n").utf8))
        return Secret(token)
    }

    /// Returns `count` letters and digits, with almost six random bits each.
    private static func text(_ count: Int, _ random: inout some RandomNumberGenerator) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)
        return String(decoding: (0..<count).map { _ in alphabet.randomElement(using: &random)! }, as: UTF8.self)
    }
}

extension GeneratedCredentials.Demo {
    private static let keys = [
        "appId", "appKey", "appSecret", "masterSecret", "adminToken", "deviceAddress", "httpAddress", "adminAddress",
        "sendersAddress",
    ]

    /// Parses the output of `json`; returns `nil` if a key is missing or not a string.
    init?(json bytes: [UInt8]) {
        guard let root = try? JSON5Parser.parse(bytes), case .object(let members) = root.value else { return nil }
        var texts: [String: String] = [:]
        for member in members {
            guard case .string(let text) = member.node.value else { return nil }
            texts[member.key] = text
        }
        guard let appID = texts["appId"], ConfigurationReader.isAppID(appID), let appKey = texts["appKey"],
            let appSecret = texts["appSecret"], let masterSecret = texts["masterSecret"],
            let adminToken = texts["adminToken"], SecretReader.isVisible(appSecret, 8...256),
            SecretReader.isVisible(masterSecret, 8...256), SecretReader.isVisible(adminToken, 16...256)
        else { return nil }
        self.init(
            appID: appID, appKey: appKey, appSecret: Secret(appSecret), masterSecret: Secret(masterSecret),
            adminToken: Secret(adminToken), deviceAddress: texts["deviceAddress"] ?? "",
            httpAddress: texts["httpAddress"] ?? "", adminAddress: texts["adminAddress"] ?? "",
            sendersAddress: texts["sendersAddress"] ?? "")
    }

    /// The file's text; no value contains a character that needs an escape.
    var json: String {
        let values = [
            appID, appKey, appSecret.exposed, masterSecret.exposed, adminToken.exposed, deviceAddress, httpAddress,
            adminAddress, sendersAddress,
        ]
        let lines = zip(Self.keys, values).map { "  \"\($0)\": \"\($1)\"" }
        return "{\n" + lines.joined(separator: ",\n") + "\n}\n"
    }

    /// Writes the file with the listeners' actual addresses, for tools that read it.
    package func save(in folder: String) throws(ConfigurationError) {
        let path = "\(folder)/\(GeneratedCredentials.demoFileName)"
        do throws(FileText.Failure) {
            try FileText.replacePrivately(path, with: Array(json.utf8))
        } catch {
            let problem = ConfigurationProblem(path: "", position: nil, text: error.description)
            throw ConfigurationError(file: nil, problems: [problem])
        }
    }
}
