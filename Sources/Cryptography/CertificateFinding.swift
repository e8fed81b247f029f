internal import COpenSSL

/// What peers will find wrong with a certificate that we show, or an operator should know of it.
package struct CertificateFinding: Equatable, Sendable, CustomStringConvertible {
    package enum Weight: Sendable {
        /// Peers that look refuse it today.
        case refused
        /// Some peers refuse it, or all will soon.
        case unwise
    }

    package let weight: Weight
    package let description: String
}

extension TLSContext {
    /// What is wrong with the certificate that the context shows and with those that follow it, today.
    ///
    /// - Parameters:
    ///   - seconds: one that ends within this time is told, too.
    ///   - isServer: shown to clients, so that its purpose and its chain are looked at.
    /// - Returns: nothing when all is well.
    package func certificateFindings(endingWithin seconds: Int64, isServer: Bool = true) -> [CertificateFinding] {
        guard let leaf = SSL_CTX_get0_certificate(raw) else {
            return [CertificateFinding(weight: .refused, description: "there is no certificate")]
        }
        var chain: OpaquePointer?
        withUnsafeMutablePointer(to: &chain) { _ = SSL_CTX_ctrl(raw, SSL_CTRL_GET_CHAIN_CERTS, 0, $0) }
        let others = (0..<max(0, chain.map { OPENSSL_sk_num($0) } ?? 0)).compactMap { index in
            OpaquePointer(OPENSSL_sk_value(chain, index))
        }
        var found = Self.dateFindings(leaf, "the certificate", seconds)
        for other in others {
            found += Self.dateFindings(other, "the chain's certificate \(Self.subject(of: other))", seconds)
        }
        guard isServer else { return found }
        if X509_check_purpose(leaf, X509_PURPOSE_SSL_SERVER, 0) != 1 {
            found.append(
                CertificateFinding(
                    weight: .refused,
                    description: "the certificate is not for servers (its extended key usage says what it is for)"))
        }
        if let gap = Self.chainGap(leaf, chain) { found.append(CertificateFinding(weight: .unwise, description: gap)) }
        return found
    }

    private static func dateFindings(
        _ certificate: OpaquePointer, _ name: String, _ seconds: Int64
    ) -> [CertificateFinding] {
        // Below zero: in the past; above: in the future; zero: the date cannot be read.
        if X509_cmp_current_time(X509_get0_notBefore(certificate)) >= 0 {
            return [CertificateFinding(weight: .refused, description: "\(name) is not valid yet")]
        }
        if X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0 {
            return [CertificateFinding(weight: .refused, description: "\(name) has expired")]
        }
        var (days, rest): (CInt, CInt) = (0, 0)
        guard ASN1_TIME_diff(&days, &rest, nil, X509_get0_notAfter(certificate)) == 1,
            Int64(days) * 86_400 + Int64(rest) < seconds
        else { return [] }
        let left = days > 0 ? "\(days) days" : "less than a day"
        return [CertificateFinding(weight: .unwise, description: "\(name) ends in \(left)")]
    }

    /// Why a client that trusts the root alone may not get from it to the certificate; `nil`: it can.
    ///
    /// Dates are looked at elsewhere. A root of one's own counts as known when it is in the file.
    private static func chainGap(_ leaf: OpaquePointer, _ chain: OpaquePointer?) -> String? {
        guard let store = X509_STORE_new() else { return nil }
        defer { X509_STORE_free(store) }
        X509_STORE_set_default_paths(store)
        guard let check = X509_STORE_CTX_new() else { return nil }
        defer {
            X509_STORE_CTX_free(check)
            OpenSSLErrors.forget()
        }
        guard X509_STORE_CTX_init(check, store, leaf, chain) == 1 else { return nil }
        X509_STORE_CTX_set_flags(check, UInt(X509_V_FLAG_NO_CHECK_TIME))
        guard X509_verify_cert(check) != 1 else { return nil }
        let error = X509_STORE_CTX_get_error(check)
        switch error {
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN: return nil
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE,
            X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
            let last = X509_STORE_CTX_get_current_cert(check) ?? leaf
            return "the file does not have the certificate of the issuer, \(name(X509_get_issuer_name(last))): clients "
                + "that do not have it themselves fail; append it to the file"
        default:
            let text = X509_verify_cert_error_string(Int(error)).map { String(cString: $0) } ?? "error \(error)"
            return "the chain in the file does not hold: \(text)"
        }
    }

    static func subject(of certificate: OpaquePointer) -> String { name(X509_get_subject_name(certificate)) }

    /// As `/O=Example/CN=Example CA`, at most 256 characters; whatever is not ASCII comes escaped.
    private static func name(_ name: OpaquePointer?) -> String {
        var buffer = [CChar](repeating: 0, count: 257)
        guard let name, X509_NAME_oneline(name, &buffer, CInt(buffer.count)) != nil else { return "of no name" }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
