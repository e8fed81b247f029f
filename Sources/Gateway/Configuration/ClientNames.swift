extension ConfigurationObject {
    /// Returns the `clientNames` of a `tls` object: the names allowed in a client's certificate.
    ///
    /// An empty result allows every certificate that `clientAuthorities` signed.
    package func clientNames() -> [String] {
        let names = strings("clientNames", limit: ConfigurationLimits.clientNameCount) ?? []
        for name in names where !(1...253 ~= name.utf8.count) || name.utf8.contains(0) || name.hasPrefix(".") {
            // OpenSSL matches a name with a leading dot against all its subdomains.
            report("clientNames", "a name has 1 to 253 bytes, and no dot before it")
        }
        if !names.isEmpty, !has("clientAuthorities") {
            report("clientNames", "not allowed without clientAuthorities, whose certificates vouch for the names")
        }
        return names
    }
}
