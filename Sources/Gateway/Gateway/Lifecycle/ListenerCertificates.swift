internal import Cryptography

/// The time from which a listener's certificate, or the last of its client authorities, has expired.
struct ListenerExpiry: Sendable, Equatable {
    enum Part: CaseIterable { case certificate, clientAuthorities }

    var listener: String
    var part = Part.certificate
    /// In seconds since 1970.
    var end: Int64

    /// The name in the log, in findings and in the metric's label: `device`, or `device.clientAuthorities`.
    var name: String { Self.name(listener, part) }

    static func name(_ listener: String, _ part: Part) -> String {
        part == .certificate ? listener : "\(listener).clientAuthorities"
    }
}

struct ListenerCertificates {
    struct Entry {
        let name: String
        let listener: GatewayConfiguration.TLSListener
        let tls: TLSContext
    }

    /// The certificates, in the order of `GatewayConfiguration.listeners`.
    private(set) var entries: [Entry] = []

    /// - Throws: An error for the first unusable file: unreadable, not PEM, or a key of another certificate.
    init(_ configuration: GatewayConfiguration) throws(TLSFailure) {
        for (name, path) in GatewayConfiguration.listeners {
            guard let listener = configuration[keyPath: path].tls else { continue }
            entries.append(Entry(name: name, listener: listener, tls: try Self.context(listener, name)))
        }
    }

    var expiries: [ListenerExpiry] {
        entries.flatMap { entry in
            [
                (ListenerExpiry.Part.certificate, entry.tls.certificateEnd),
                (.clientAuthorities, entry.tls.clientAuthoritiesEnd),
            ]
            .compactMap { part, end in end.map { ListenerExpiry(listener: entry.name, part: part, end: $0) } }
        }
    }

    static func context(
        _ listener: GatewayConfiguration.TLSListener, _ name: String
    ) throws(TLSFailure) -> TLSContext {
        try TLSContext(
            certificatePath: listener.certificateFile, keyPath: listener.keyFile,
            clients: listener.clientAuthoritiesFile.map {
                ClientCertificates(authoritiesFile: $0, names: listener.clientNames)
            }, name: name)
    }

    /// Returns the problems for which clients refuse certificates, and other warnings, each with its listener and file.
    func findings(endingWithin seconds: Int64) -> (refused: [String], unwise: [String]) {
        var (refused, unwise): ([String], [String]) = ([], [])
        for entry in entries {
            for finding in entry.tls.certificateFindings(endingWithin: seconds) {
                let text = "\(entry.name).tls, \(entry.listener.certificateFile): \(finding)"
                if finding.weight == .refused { refused.append(text) } else { unwise.append(text) }
            }
        }
        return (refused, unwise)
    }

    /// Throws if a certificate that clients accept would be replaced by one that they refuse.
    ///
    /// A certificate that clients already refuse may be replaced by any other.
    func requireNoWorse(than inForce: ListenerCertificates) throws(TLSFailure) {
        for entry in entries {
            guard let old = inForce.entries.first(where: { $0.name == entry.name }),
                !old.tls.certificateFindings(endingWithin: 0).contains(where: { $0.weight == .refused })
            else { continue }
            let findings = entry.tls.certificateFindings(endingWithin: 0)
            guard let finding = findings.first(where: { $0.weight == .refused }) else { continue }
            throw TLSFailure(
                "\(entry.name).tls, \(entry.listener.certificateFile): \(finding); the certificate in force stays")
        }
    }
}
