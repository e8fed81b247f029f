internal import Cryptography
internal import JSON
internal import TextForms

/// The checked settings of one credential.
struct CredentialValues {
    let vendor: Vendor
    private var texts: [String: String] = [:]

    init(_ vendor: Vendor, _ values: [String: [UInt8]]) throws(CredentialFailure) {
        self.vendor = vendor
        let fields = VendorCredential.fields(of: vendor)
        for (name, bytes) in values {
            guard fields.contains(where: { $0.name == name }) else {
                let known = fields.map(\.name).joined(separator: ", ")
                throw CredentialFailure("\(vendor.rawValue) has no setting \(PeerText.bounded(name)); use \(known)")
            }
            guard bytes.count <= VendorCredential.valueByteCount else {
                throw bad(name, "at most \(VendorCredential.valueByteCount) bytes long")
            }
            let isBlank: (UInt8) -> Bool = { $0 == 0x20 || (0x09...0x0D).contains($0) }
            let text = String(decoding: bytes.drop(while: isBlank), as: UTF8.self)
            texts[name] = String(decoding: text.utf8.reversed().drop(while: isBlank).reversed(), as: UTF8.self)
        }
        for field in fields where field.isRequired && texts[field.name]?.isEmpty ?? true {
            throw CredentialFailure("\(vendor.rawValue) needs the setting \(field.name): \(field.hint)")
        }
    }

    /// Returns a failure that names the setting and its requirement, but not its value.
    func bad(_ name: String, _ requirement: String) -> CredentialFailure {
        let hint = VendorCredential.fields(of: vendor).first { $0.name == name }?.hint ?? ""
        return CredentialFailure("\(vendor.rawValue): \(name) must be \(requirement); its source: \(hint)")
    }

    func text(_ name: String) -> String? { texts[name].flatMap { $0.isEmpty ? nil : $0 } }

    /// Returns a required identifier, whose characters are safe in a URL's path.
    func name(_ name: String) throws(CredentialFailure) -> String {
        guard let text = text(name), text.utf8.count <= 256, text.isPlain(with: "-._") else {
            throw bad(name, "1 to 256 letters, digits, -, . or _")
        }
        return text
    }

    func optionalName(_ name: String) throws(CredentialFailure) -> String? {
        text(name) == nil ? nil : try self.name(name)
    }

    func secret(_ name: String) throws(CredentialFailure) -> String {
        guard let text = text(name), text.utf8.count <= 512, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { throw bad(name, "1 to 512 visible ASCII characters") }
        return text
    }

    func address(_ name: String, _ standard: StaticString) throws(CredentialFailure) -> ServiceAddress {
        guard let text = text(name) else { return ServiceAddress(standard) }
        guard let address = ServiceAddress(setting: text) else {
            throw bad(name, "an https URL without query, or http to this machine")
        }
        return address
    }

    func callback(limit: Int) throws(CredentialFailure) -> String? {
        guard let text = text("callbackURL") else { return nil }
        guard text.utf8.count <= limit, text.hasPrefix("https://") || text.hasPrefix("http://"),
            text.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\"") })
        else { throw bad("callbackURL", "a URL of at most \(limit) visible ASCII characters") }
        return text
    }

    /// Reads the members of a service account's JSON.
    func serviceAccount(
        _ names: [String], optional: [String] = []
    ) throws(CredentialFailure) -> [String: String] {
        let found: [String: String]? = JSONTree.parsing(
            Array((text("serviceAccount") ?? "").utf8), byteLimit: VendorCredential.valueByteCount
        ) { value in
            guard value.kind == .object else { return nil }
            var members: [String: String] = [:]
            for (key, member) in value.members {
                if let name = key.string, let text = member.lenientText { members[name] = text }
            }
            return members
        }
        guard let found else { throw bad("serviceAccount", "a JSON object") }
        for name in names where found[name]?.isEmpty ?? true { throw bad("serviceAccount", "a file with \(name)") }
        for name in names + optional where name != "private_key" {
            guard let text = found[name] else { continue }
            guard text.utf8.count <= 512, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
                throw bad("serviceAccount", "a file whose \(name) has at most 512 visible ASCII characters")
            }
        }
        return found
    }

    func rsaKey(_ pem: String) throws(CredentialFailure) -> RSASigningKey {
        do throws(TLSFailure) {
            return try RSASigningKey(pem: Array(pem.utf8), name: "private_key")
        } catch {
            throw CredentialFailure(
                "\(vendor.rawValue): serviceAccount: \(error.description); download the file again")
        }
    }
}

extension FCM {
    init(_ values: CredentialValues) throws(CredentialFailure) {
        let account = try values.serviceAccount(
            ["project_id", "client_email", "private_key_id", "private_key"], optional: ["token_uri"])
        let project = account["project_id"] ?? ""
        guard project.isPlain(with: "-:.") else { throw values.bad("serviceAccount", "a file with a valid project_id") }
        let uri = account["token_uri"] ?? "https://oauth2.googleapis.com/token"
        guard let standard = ServiceAddress(setting: uri) else {
            throw values.bad("serviceAccount", "a file whose token_uri is an https URL")
        }
        let override = values.text("tokenURL") == nil ? nil : try values.address("tokenURL", "")
        self.init(
            projectID: project, clientEmail: account["client_email"] ?? "", keyID: account["private_key_id"] ?? "",
            tokenURI: uri, key: try values.rsaKey(account["private_key"] ?? ""),
            base: try values.address("baseURL", "https://fcm.googleapis.com"), tokenURL: override ?? standard)
    }
}

extension Harmony {
    init(_ values: CredentialValues) throws(CredentialFailure) {
        let account = try values.serviceAccount(["project_id", "key_id", "sub_account", "private_key"])
        let project = account["project_id"] ?? ""
        guard project.isPlain(with: "-_") else { throw values.bad("serviceAccount", "a file with a valid project_id") }
        self.init(
            projectID: project, keyID: account["key_id"] ?? "", subAccount: account["sub_account"] ?? "",
            key: try values.rsaKey(account["private_key"] ?? ""),
            base: try values.address("baseURL", "https://push-api.cloud.huawei.com"))
    }
}

extension WebPush {
    init(_ values: CredentialValues) throws(CredentialFailure) {
        let key: SigningKey
        do throws(TLSFailure) {
            key = try SigningKey(pem: Array((values.text("privateKey") ?? "").utf8), name: "privateKey")
        } catch {
            throw values.bad("privateKey", "a P-256 private key in PEM form (PKCS #8)")
        }
        guard let point = key.publicPoint else { throw values.bad("privateKey", "a complete P-256 key") }
        let subject = values.text("subject") ?? ""
        let isAddress = subject.hasPrefix("mailto:") && subject.contains("@") || subject.hasPrefix("https://")
        guard isAddress, subject.utf8.count <= 256, subject.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw values.bad("subject", "mailto:name@example.com or an https URL")
        }
        let texts = values.text("allowedHosts").map { text in
            text.split { $0 == "," || $0.isWhitespace }.map(String.init)
        }
        var hosts: [WebPushHost] = []
        for text in texts ?? WebPushHost.standard {
            guard let host = WebPushHost(text) else {
                throw values.bad("allowedHosts", "names like push.example.org, *.example.org or push.example.org:8443")
            }
            hosts.append(host)
        }
        guard (1...256).contains(hosts.count) else { throw values.bad("allowedHosts", "1 to 256 names") }
        self.init(key: key, publicPoint: point, subject: subject, allowed: hosts)
    }
}
