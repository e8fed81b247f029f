internal import Foundation
internal import HTTPClient
internal import TextForms

/// The addresses and secrets of a command: from options, else the environment, a context, or the demo app's file.
struct Credentials {
    static let dataOption = CommandOption.value(
        "data", "DIR", "The gateway's data folder, for its demo.json. Default: ./longwire-data.")
    static let contextOption = CommandOption.value(
        "context", "NAME", "A context of the configuration file; see longwire context list.")
    static let authoritiesOption = CommandOption.value(
        "ca", "FILE", "PEM certificates to trust instead of the system's.")
    static let certificateOption = CommandOption.value(
        "cert", "FILE", "PEM certificate to show to a listener that asks for one.")
    static let keyOption = CommandOption.value(
        "key", "FILE", "The certificate's PEM key. Default: in the file of --cert.")
    static let appOption = CommandOption.value("app", "ID", "The app's id.")

    private let arguments: ParsedArguments
    private let environment: [String: String]
    private let demo: [String: String]
    private let folder: String
    /// The values of the context that the call or the environment names, else of the default context.
    private let chosen: [String: String]
    private let isNamed: Bool

    init(_ arguments: ParsedArguments, _ context: CommandContext) throws(CommandFailure) {
        self.arguments = arguments
        environment = context.environment
        folder = arguments.text("data") ?? context.environment["LONGWIRE_DATA"] ?? "./longwire-data"
        demo = try Self.readDemo(in: folder, isWanted: arguments.text("data") != nil)
        let name =
            arguments.text("context") ?? context.environment["LONGWIRE_CONTEXT"].flatMap { $0.isEmpty ? nil : $0 }
        isNamed = name != nil
        let contexts = try Contexts(context.environment)
        guard let name = name ?? contexts.current else {
            chosen = [:]
            return
        }
        chosen = try contexts.context(name)
    }

    private static func readDemo(in folder: String, isWanted: Bool) throws(CommandFailure) -> [String: String] {
        let path = folder + "/demo.json"
        guard let data = FileManager.default.contents(atPath: path) else {
            guard !isWanted else { throw .usage("there is no readable \(path); has the gateway been started there?") }
            return [:]
        }
        guard let members = try? JSONDecoder().decode([String: String].self, from: data) else {
            throw .usage("\(path) is not a demo app's file")
        }
        return members
    }

    /// Returns the first non-empty value of the option, the environment variable and the context, or demo.json; else `nil`.
    ///
    /// A context named in this call precedes the environment variable.
    func find(_ option: String, _ variable: String, _ member: String) -> String? {
        let (first, second) =
            isNamed ? (chosen[member], environment[variable]) : (environment[variable], chosen[member])
        for candidate in [arguments.text(option), first, second, demo[member]] {
            if let candidate, !candidate.isEmpty { return candidate }
        }
        return nil
    }

    private func require(_ option: String, _ variable: String, _ member: String) throws(CommandFailure) -> String {
        guard let text = find(option, variable, member) else {
            throw .usage("no \(member): give --\(option), set \(variable), or name the gateway's data folder (--data)")
        }
        return text
    }

    func appID() throws(CommandFailure) -> String { try require("app", "LONGWIRE_APP_ID", "appId") }
    func appKey() throws(CommandFailure) -> String { try require("app-key", "LONGWIRE_APP_KEY", "appKey") }
    func masterSecret() throws(CommandFailure) -> String {
        try require("master-secret", "LONGWIRE_MASTER_SECRET", "masterSecret")
    }
    func adminToken() throws(CommandFailure) -> String {
        try require("admin-token", "LONGWIRE_ADMIN_TOKEN", "adminToken")
    }
    var hasApp: Bool { find("app", "LONGWIRE_APP_ID", "appId") != nil }
    /// The TLS settings for https: trusted roots and client certificate.
    var trust: HTTPTrust {
        HTTPTrust(
            authoritiesFile: find("ca", "LONGWIRE_CA", "ca"), certificateFile: find("cert", "LONGWIRE_CERT", "cert"),
            keyFile: find("key", "LONGWIRE_KEY", "key"))
    }
    /// The app's secret; only an unregistered device needs it.
    var appSecret: String { find("app-secret", "LONGWIRE_APP_SECRET", "appSecret") ?? "" }

    func httpBase() throws(CommandFailure) -> URL {
        try Self.url(find("http", "LONGWIRE_HTTP", "httpAddress") ?? "127.0.0.1:7080")
    }

    func adminBase() throws(CommandFailure) -> URL {
        try Self.url(find("admin", "LONGWIRE_ADMIN", "adminAddress") ?? "127.0.0.1:7081")
    }

    func device() throws(CommandFailure) -> (host: String, port: UInt16) {
        let text = find("", "LONGWIRE_DEVICE", "deviceAddress") ?? "127.0.0.1:7000"
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]), port > 0 else {
            throw .usage("\(text) is no host:port")
        }
        return (Self.reachable(Self.unbracketed(String(text[..<colon]))), port)
    }

    static func unbracketed(_ host: String) -> String {
        host.hasPrefix("[") && host.hasSuffix("]") && host.contains(":") ? String(host.dropFirst().dropLast()) : host
    }

    private static func url(_ text: String) throws(CommandFailure) -> URL {
        let whole = text.contains("://") ? text : "http://\(text)"
        guard let url = URL(string: whole), let scheme = url.scheme, ["http", "https"].contains(scheme),
            let host = url.host, !host.isEmpty
        else { throw .usage("\(text) is neither host:port nor an http(s) URL") }
        guard var parts = URLComponents(url: url, resolvingAgainstBaseURL: false) else { return url }
        let reached = reachable(host)
        guard reached != host else { return url }
        parts.host = reached.contains(":") ? "[\(reached)]" : reached
        return parts.url ?? url
    }

    /// Returns the host to connect to; for a listener on all addresses, the loopback address.
    private static func reachable(_ host: String) -> String {
        switch host {
        case "0.0.0.0": "127.0.0.1"
        case "::": "::1"
        default: host
        }
    }
}
