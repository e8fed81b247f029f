internal import FoundationEssentials
internal import Glibc
internal import TextForms

/// Where the gateway is and who we are to it: `demo.json` of the data folder, overruled by the command line.
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
    /// `nil`: none of the listeners speaks TLS.
    var tls: TLSFiles?

    /// - Throws: a usage failure saying which file or option is missing or malformed.
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
        // From the environment, so that the token need not stand where every process can read it.
        let token = variable("LONGWIRE_ADMIN_TOKEN")
        adminToken =
            options.mode == .handoff
            ? try needed("admin-token", "adminToken", token)
            : words.text("admin-token") ?? token ?? file["adminToken"] ?? ""
        http = try endpoint("http-address", "httpAddress", 7080, .http)
        // Trusted authorities and the client certificate, by the names and variables of the other commands.
        guard !secureListeners.isEmpty else {
            guard let option = ["ca", "cert", "key"].first(where: { words.has($0) }) else { return }
            // The environment's may be there for other commands.
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

    /// Which of the four speak TLS here; for reports.
    var secureListeners: [String] {
        [("devices", device), ("senders", senders), ("push API", http), ("admin listener", admin)].filter(\.1.isSecure)
            .map(\.0)
    }
}
