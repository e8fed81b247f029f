internal import Configuration
internal import Vendors

extension SenderConfigurationReader {
    static let channelNames = "one of " + Channel.all.map { "\"\($0.name)\"" }.joined(separator: ", ")

    /// Reads a credential of another vendor than Apple, with the fields that the vendor's module lists.
    mutating func readAccount(_ object: ConfigurationObject, _ vendor: Vendor) -> VendorAccount? {
        defer { object.finish() }
        let name = credentialName(object)
        let apps = object.strings("apps", limit: 1_000) ?? []
        var values: [String: [UInt8]] = [:]
        var isComplete = true
        for field in VendorCredential.fields(of: vendor) {
            if let value = read(field, object) {
                values[field.name] = value
            } else if field.isRequired || object.has(field.name) || object.has(field.name + "File") {
                isComplete = false
            }
        }
        if let receipts = object.object("receipts"), let account = readReceipts(receipts, vendor, name, apps) {
            receiptAccounts.append(account)
        }
        guard let name, isComplete else { return nil }
        do throws(CredentialFailure) {
            return try VendorAccount(name: name, vendor: vendor, values: values, apps: apps)
        } catch {
            object.report("vendor", error.description)
            return nil
        }
    }

    /// Reads one field of a credential: a text; a secret may instead be in the file that the setting `<name>File` names.
    private mutating func read(_ field: CredentialField, _ object: ConfigurationObject) -> [UInt8]? {
        let fileKey = field.name + "File"
        let form = "1 to \(VendorCredential.valueByteCount) bytes"
        // A secret's value is not shown in a report.
        let inline =
            field.isSecret ? object.strings(field.name, limit: 1, isSecret: true)?.first : text(field, object, form)
        guard field.isSecret else {
            if field.isRequired, !object.has(field.name) { object.report(field.name, "missing; \(field.hint)") }
            return inline.map { Array($0.utf8) }
        }
        let file = object.string(fileKey, allowed: "the path of a file", where: { !$0.isEmpty })
        if object.has(field.name), object.has(fileKey) {
            object.report(fileKey, "not allowed beside \(field.name); give one of the two")
            return nil
        }
        if let inline {
            guard (1...VendorCredential.valueByteCount).contains(inline.utf8.count) else {
                object.report(field.name, "the value is not allowed (not shown); \(form)")
                return nil
            }
            return Array(inline.utf8)
        }
        guard let file else {
            if field.isRequired, !object.has(field.name), !object.has(fileKey) {
                object.report(
                    field.name, "missing; give \(fileKey) with the path of a file, or \(field.name): \(field.hint)")
            }
            return nil
        }
        do throws(FileText.Failure) {
            let contents = try FileText.read(resolved(file), limit: VendorCredential.valueByteCount)
            if contents.isReadableByOthers {
                warnings.append("\(resolved(file)) holds a secret and others can read it; chmod 600")
            }
            return contents.bytes
        } catch {
            object.report(fileKey, "\(resolved(file)) cannot be read: \(error.reason)")
            return nil
        }
    }

    private func text(_ field: CredentialField, _ object: ConfigurationObject, _ form: String) -> String? {
        object.string(field.name, allowed: form) { (1...VendorCredential.valueByteCount).contains($0.utf8.count) }
    }

    /// Reads `vendors`: the bounds of each vendor, all optional.
    mutating func readVendors(
        _ root: ConfigurationObject, _ link: GatewayLink.Settings, of used: Set<Vendor>, _ proxy: () -> ProxyChoice?
    ) -> [Vendor: VendorSettings] {
        var all: [Vendor: VendorSettings] = [:]
        let object = root.object("vendors")
        for vendor in Vendor.allCases {
            var settings = VendorSettings(vendor)
            settings.failingJobs = max(1, link.jobs / 4)
            let own = object?.object(vendor.rawValue)
            if used.contains(vendor), own?.has("proxy") != true { settings.proxy = proxy() }
            if let own { read(own, &settings, link) }
            all[vendor] = settings
        }
        object?.finish()
        return all
    }

    private mutating func read(
        _ object: ConfigurationObject, _ settings: inout VendorSettings, _ link: GatewayLink.Settings
    ) {
        defer { object.finish() }
        settings.connections = Int(object.integer("connections", in: 1...256) ?? Int64(settings.connections))
        settings.requests = Int(object.integer("requests", in: 1...10_000) ?? Int64(settings.requests))
        settings.requestsPerSecond = Int(
            object.integer("requestsPerSecond", in: 1...100_000) ?? Int64(settings.requestsPerSecond))
        settings.timeoutMilliseconds = UInt64(
            object.integer("timeoutMilliseconds", in: 100...300_000) ?? Int64(settings.timeoutMilliseconds))
        settings.authoritiesFile = authorities(object)
        if object.has("proxy") { settings.proxy = object.object("proxy").flatMap { readProxy($0) } }
        // A request starts only if it ends within its job's lease, so the lease must be longer than the timeout.
        if settings.timeoutMilliseconds > UInt64(link.leaseSeconds) * 500 {
            object.report("timeoutMilliseconds", "must be at most half of gateway.leaseSeconds")
        }
    }

    /// Returns warnings for credentials that no job can use, because earlier ones serve the same apps.
    func unused(_ accounts: [VendorAccount]) -> [String] {
        var served: Set<String> = []
        return accounts.compactMap { account in
            var isUsed = false
            for app in account.apps.isEmpty ? [""] : account.apps {
                isUsed = served.insert("\(account.vendor.rawValue) \(app)").inserted || isUsed
            }
            return isUsed ? nil : "credentials: \(account.name) is never used: earlier ones serve its apps"
        }
    }
}

extension SenderConfiguration {
    /// The channels with a credential, whose jobs are leased.
    var channels: [Channel] {
        let vendors = Set(vendorAccounts.map(\.vendor))
        return Channel.all.filter { channel in
            switch channel {
            case .apns: !credentials.isEmpty
            case .vendor(let vendor): vendors.contains(vendor)
            }
        }
    }

    func accounts(of vendor: Vendor) -> [VendorAccount] { vendorAccounts.filter { $0.vendor == vendor } }
}
