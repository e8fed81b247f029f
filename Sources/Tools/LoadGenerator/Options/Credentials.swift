internal import FoundationEssentials
internal import Glibc
internal import TextForms

/// The gateway's addresses and the app's secrets, from `demo.json` of the data folder and the command line.
struct Credentials: Equatable {
    var appID: String
    var appKey: String
    var appSecret: String
    var masterSecret: String
    var device: Endpoint
    var senders: Endpoint
    var http: Endpoint
    var admin: Endpoint
    var adminToken: String
    /// The TLS files, or `nil` if no listener uses TLS.
    var tls: TLSFiles?

    /// - Throws: a usage failure that names the missing or malformed file or option.
    init(_ options: BenchOptions) throws(CommandFailure) {
        let words = options.words
        let path = options.dataFolder + "/demo.json"
        var file: [String: String] = [:]
        var explanation = "there is no \(path)"
        if let bytes = try TextFile.read(path, limit: Limits.credentialsByteCount) {
            guard let members = try? JSONDecoder().decode([String: String].self, from: Data(bytes)) else {
                throw CommandFailure.usage("\(path) is not the gateway's JSON")
            }
            (file, explanation) = (members, "\(path) does not have it")
        }
        func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
        func needed(_ option: String, _ member: String, _ given: String? = nil) throws(CommandFailure) -> String {
            guard let value = words.text(option) ?? given ?? file[member], !value.isEmpty else {
                throw CommandFailure.usage("--\(option) is needed: \(explanation); give --data or --\(option)")
            }
            return value
        }
        func endpoint(
            _ option: String, _ member: String, _ port: Int, _ schemes: Endpoint.Schemes
        ) throws(CommandFailure) -> Endpoint {
            let text = words.text(option) ?? file[member] ?? "127.0.0.1:\(port)"
            return try Endpoint(text, for: "--\(option)", schemes: schemes)
        }
        appID = try needed("app-id", "appId")
        appKey = options.mode == .http || options.mode == .broadcast ? try needed("app-key", "appKey") : ""
        appSecret = try needed("app-secret", "appSecret")
        masterSecret = options.mode == .idle ? "" : try needed("master-secret", "masterSecret")
        device = try endpoint("device-address", "deviceAddress", 7000, .frames)
        if words.has("tls") { device.isSecure = true }
        senders = try endpoint("senders-address", "sendersAddress", 7001, .frames)
        admin = try endpoint("admin-address", "adminAddress", 7081, .http)
        // The token may come from the environment, because other processes can read a command line.
        let token = variable("LONGWIRE_ADMIN_TOKEN")
        adminToken =
            options.mode == .handoff
            ? try needed("admin-token", "adminToken", token)
            : words.text("admin-token") ?? token ?? file["adminToken"] ?? ""
        http = try endpoint("http-address", "httpAddress", 7080, .http)
        // The options and variables have the same names as in the other commands.
        guard !secureListeners.isEmpty else {
            guard let option = ["ca", "cert", "key"].first(where: { words.has($0) }) else { return }
            // The environment variables may be set for other commands, so only options are refused.
            throw CommandFailure.usage(
                "--\(option) is for TLS; give --tls, or an address that begins with https:// or tls://")
        }
        func found(_ option: String, _ name: String) -> String? {
            let text = words.text(option) ?? variable(name)
            return text == "" ? nil : text
        }
        let files = TLSFiles(
            authorities: found("ca", "LONGWIRE_CA"), certificate: found("cert", "LONGWIRE_CERT"),
            key: found("key", "LONGWIRE_KEY"))
        guard files.key == nil || files.certificate != nil else {
            throw CommandFailure.usage("--key belongs to --cert, which is missing")
        }
        try files.check()
        tls = files
    }

    /// The listeners that use TLS, for reports.
    var secureListeners: [String] {
        [("devices", device), ("senders", senders), ("push API", http), ("admin listener", admin)].filter(\.1.isSecure)
            .map(\.0)
    }
}
