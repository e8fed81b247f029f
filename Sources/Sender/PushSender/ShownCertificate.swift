internal import Cryptography

/// A certificate in use, and its users.
struct ShownCertificate {
    struct Use {
        /// The name of the listener or credential: `admin`, `hook`, `receipts`, or `credential` and its name.
        let name: String
        let tls: TLSContext
        let isServer: Bool
    }

    /// The file's path and the certificate's digest.
    ///
    /// Two copies of a certificate are distinct, because they are replaced separately.
    let identity: String
    private(set) var uses: [Use]

    static func gathered(_ uses: [(file: String, use: Use)]) -> [ShownCertificate] {
        var certificates: [ShownCertificate] = []
        for (file, use) in uses.sorted(by: { $0.use.name < $1.use.name }) {
            let identity = "\(file) \(use.tls.certificateDigest ?? "")"
            if let place = certificates.firstIndex(where: { $0.identity == identity }) {
                certificates[place].uses.append(use)
            } else {
                certificates.append(ShownCertificate(identity: identity, uses: [use]))
            }
        }
        return certificates
    }

    /// The expiries of the certificate and of the last client authority of each listener that uses it.
    var ends: [CertificateEnds.End] {
        let own = uses.compactMap(\.tls.certificateEnd).min().map {
            CertificateEnds.End(identity: identity, names: uses.map(\.name), time: $0)
        }
        let authorities = uses.compactMap { use in
            use.tls.clientAuthoritiesEnd.map {
                let name = "\(use.name).clientAuthorities"
                return CertificateEnds.End(identity: name, names: [name], time: $0)
            }
        }
        return (own.map { [$0] } ?? []) + authorities
    }

    /// Returns the problems that peers find with the certificate, each once, with the names of all users that have it.
    func findings(endingWithin seconds: Int64) -> [(names: String, finding: CertificateFinding)] {
        var found: [(names: [String], finding: CertificateFinding)] = []
        for use in uses {
            for finding in use.tls.certificateFindings(endingWithin: seconds, isServer: use.isServer) {
                if let place = found.firstIndex(where: { $0.finding == finding }) {
                    found[place].names.append(use.name)
                } else {
                    found.append(([use.name], finding))
                }
            }
        }
        return found.map { ($0.names.joined(separator: ", "), $0.finding) }
    }
}
