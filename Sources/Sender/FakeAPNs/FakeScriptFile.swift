package import Configuration
internal import FakeVendors

extension FakeScript {
    /// Reads a script: JSON5 with `rules` and connection settings; errors name the source `file`.
    package static func read(_ bytes: [UInt8], file: String) throws(ConfigurationError) -> FakeScript {
        let problems = ConfigurationProblems()
        let root = try ConfigurationObject.root(bytes, file: file, problems: problems)
        var script = FakeScript()
        script.rules = (root.objects("rules", limit: 10_000) ?? []).map(rule)
        script.streams = UInt32(root.integer("streams", in: 1...1_000_000) ?? Int64(script.streams))
        script.requestsPerConnection = root.integer("requestsPerConnection", in: 1...1_000_000_000).map { Int($0) }
        script.refusedConnections = Int(root.integer("refusedConnections", in: 0...1_000_000) ?? 0)
        script.deafConnections = Int(root.integer("deafConnections", in: 0...1_000_000) ?? 0)
        script.silentConnections = Int(root.integer("silentConnections", in: 0...1_000_000) ?? 0)
        script.clockSeconds = root.integer("clockSeconds", in: -1_000_000_000...1_000_000_000) ?? 0
        script.refusalReason =
            root.string("refusalReason", allowed: "at most 64 characters", where: isReason) ?? script.refusalReason
        script.vendors = VendorScript.read(root.object("vendors"))
        root.finish()
        guard problems.all.isEmpty else { throw ConfigurationError(file: file, problems: problems.sorted) }
        return script
    }

    private static func isReason(_ text: String) -> Bool {
        text.utf8.count <= 64 && text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F && $0 != 0x22 && $0 != 0x5C }
    }

    private static func rule(_ object: ConfigurationObject) -> Rule {
        var rule = Rule()
        rule.prefix =
            object.string("prefix", allowed: "the first hexadecimal digits of a token, in lower case") { text in
                text.utf8.count <= 512 && text.allSatisfy { $0.isHexDigit && !$0.isUppercase }
            } ?? ""
        rule.deed = object.choice("deed", Deed.self) ?? .answer
        rule.status = Int(object.integer("status", in: 200...599) ?? 200)
        rule.reason = object.string("reason", allowed: "at most 64 characters", where: isReason) ?? ""
        rule.timestamp = object.integer("timestamp", in: 0...(1 << 52)) ?? 0
        rule.retryAfterSeconds = object.integer("retryAfterSeconds", in: 0...86_400)
        rule.delayMilliseconds = UInt64(object.integer("delayMilliseconds", in: 0...3_600_000) ?? 0)
        rule.times = object.integer("times", in: 1...1_000_000_000).map { Int($0) }
        object.finish()
        return rule
    }
}
