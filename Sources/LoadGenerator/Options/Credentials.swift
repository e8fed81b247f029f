internal import FoundationEssentials
internal import Glibc

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

    /// The shape of `demo.json`; anything may be missing if an option gives it.
    private struct DemoFile: Decodable {
        var appId: String?
        var appKey: String?
        var appSecret: String?
        var masterSecret: String?
        var deviceAddress: String?
        var sendersAddress: String?
        var httpAddress: String?
        var adminAddress: String?
        var adminToken: String?
    }

    /// - Throws: `UsageError` saying which file or option is missing or malformed.
    init(_ options: BenchOptions) throws(UsageError) {
        let path = options.dataFolder + "/demo.json"
        var file = DemoFile()
        var explanation = "there is no \(path)"
        do {
            if let bytes = try TextFile.read(path, limit: Limits.credentialsByteCount) {
                do {
                    file = try JSONDecoder().decode(DemoFile.self, from: Data(bytes))
                    explanation = "\(path) does not have it"
                } catch {
                    throw UsageError("\(path) is not the gateway's JSON")
                }
            }
        } catch let error as UsageError {
            throw error
        } catch {
            throw UsageError("\(path) cannot be read")
        }
        func needed(_ name: String, _ given: String?, _ found: String?) throws(UsageError) -> String {
            guard let value = given ?? found, !value.isEmpty else {
                throw UsageError("\(name) is needed: \(explanation); give --data or \(name)")
            }
            return value
        }
        appID = try needed("--app-id", options.appID, file.appId)
        let isHTTP = options.mode == .http || options.mode == .broadcast
        let publishes = options.mode != .idle
        appKey = isHTTP ? try needed("--app-key", options.appKey, file.appKey) : ""
        appSecret = try needed("--app-secret", options.appSecret, file.appSecret)
        masterSecret = publishes ? try needed("--master-secret", options.masterSecret, file.masterSecret) : ""
        device = try Endpoint(
            options.deviceAddress ?? file.deviceAddress ?? "127.0.0.1:7000", for: "--device-address", schemes: .frames)
        if options.isSecure { device.isSecure = true }
        senders = try Endpoint(
            options.sendersAddress ?? file.sendersAddress ?? "127.0.0.1:7001", for: "--senders-address",
            schemes: .frames)
        admin = try Endpoint(
            options.adminAddress ?? file.adminAddress ?? "127.0.0.1:7081", for: "--admin-address", schemes: .http)
        // From the environment, so that the token need not stand where every process can read it.
        let given = options.adminToken ?? getenv("LONGWIRE_ADMIN_TOKEN").map { String(cString: $0) }
        adminToken =
            options.mode == .handoff
            ? try needed("--admin-token", given, file.adminToken) : given ?? file.adminToken ?? ""
        http = try Endpoint(
            options.httpAddress ?? file.httpAddress ?? "127.0.0.1:7080", for: "--http-address", schemes: .http)
        try readTLS(options)
    }

    /// Reads whom to believe and what to show, by the names and variables of the other commands.
    private mutating func readTLS(_ options: BenchOptions) throws(UsageError) {
        guard !secureListeners.isEmpty else {
            let given = [
                ("--ca", options.authoritiesFile), ("--cert", options.certificateFile), ("--key", options.keyFile),
            ]
            guard let option = given.first(where: { $0.1 != nil })?.0 else { return }
            // The environment's may be there for other commands.
            throw UsageError("\(option) is for TLS; give --tls, or an address that begins with https:// or tls://")
        }
        func found(_ given: String?, _ variable: String) -> String? {
            let text = given ?? getenv(variable).map { String(cString: $0) }
            return text == "" ? nil : text
        }
        let files = TLSFiles(
            authorities: found(options.authoritiesFile, "LONGWIRE_CA"),
            certificate: found(options.certificateFile, "LONGWIRE_CERT"), key: found(options.keyFile, "LONGWIRE_KEY"))
        guard files.key == nil || files.certificate != nil else {
            throw UsageError("--key belongs to --cert, which is missing")
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
