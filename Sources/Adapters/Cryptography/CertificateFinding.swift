internal import COpenSSL

/// A problem with a certificate that this process presents or trusts, for peers or for the operator.
package struct CertificateFinding: Equatable, Sendable, CustomStringConvertible {
    package enum Weight: Sendable {
        /// Peers that verify certificates reject it now.
        case refused
        /// Some peers reject it, or all peers will soon.
        case unwise
    }

    package let weight: Weight
    package let description: String
    /// Whether the finding reports that `certificateEnd` is near.
    package var isOwnEnd = false
}

extension TLSContext {
    /// Returns the current problems of the context's certificate and its chain.
    ///
    /// - Parameters:
    ///   - seconds: a certificate that expires within this time is reported, too.
    ///   - isServer: whether clients verify the certificate, so that its purpose and chain are checked.
    /// - Returns: the problems, or an empty array.
    package func certificateFindings(endingWithin seconds: Int64, isServer: Bool = true) -> [CertificateFinding] {
        guard let leaf = SSL_CTX_get0_certificate(raw) else {
            return [CertificateFinding(weight: .refused, description: "there is no certificate")]
        }
        let chain = chainOfFile
        let needed = Self.needed(leaf, chain)
        var found = Self.dateFindings(leaf, "the certificate", seconds)
        for other in Self.certificates(of: chain) {
            let name = "the chain's certificate \(Self.subject(of: other))"
            if needed.contains(other) {
                found += Self.dateFindings(other, name, seconds)
            } else if let fault = Self.dateFault(other) {
                let advice = "no client that has its subject as a root needs it: remove it from the file"
                found.append(CertificateFinding(weight: .unwise, description: "\(name) \(fault); \(advice)"))
            }
        }
        guard isServer else { return found }
        found += authorityFindings(seconds)
        if X509_check_purpose(leaf, X509_PURPOSE_SSL_SERVER, 0) != 1 {
            found.append(
                CertificateFinding(
                    weight: .refused,
                    description:
                        "the certificate is not for servers (its key usage or extended key usage says what it is for)"))
        }
        if let gap = Self.chainGap(leaf, chain) { found.append(CertificateFinding(weight: .unwise, description: gap)) }
        return found
    }

    private static func dateFindings(
        _ certificate: OpaquePointer, _ name: String, _ seconds: Int64
    ) -> [CertificateFinding] {
        if let fault = dateFault(certificate) {
            return [CertificateFinding(weight: .refused, description: "\(name) \(fault)")]
        }
        var (days, rest): (CInt, CInt) = (0, 0)
        guard ASN1_TIME_diff(&days, &rest, nil, X509_get0_notAfter(certificate)) == 1,
            Int64(days) * 86_400 + Int64(rest) < seconds
        else { return [] }
        let left = days > 0 ? "\(days) days" : "less than a day"
        return [CertificateFinding(weight: .unwise, description: "\(name) ends in \(left)", isOwnEnd: true)]
    }

    private static func dateFault(_ certificate: OpaquePointer) -> String? {
        // `X509_cmp_current_time` returns a negative number for the past, a positive one for the future, 0 for an unreadable
        // date.
        if X509_cmp_current_time(X509_get0_notBefore(certificate)) >= 0 { return "is not valid yet" }
        return X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0 ? "has expired" : nil
    }

    private var chainOfFile: OpaquePointer? {
        var chain: OpaquePointer?
        withUnsafeMutablePointer(to: &chain) { _ = SSL_CTX_ctrl(raw, SSL_CTRL_GET_CHAIN_CERTS, 0, $0) }
        return chain
    }

    private static func certificates(of list: OpaquePointer?) -> [OpaquePointer] {
        (0..<max(0, list.map { OPENSSL_sk_num($0) } ?? 0)).compactMap { OpaquePointer(OPENSSL_sk_value(list, $0)) }
    }

    /// The SHA-256 of the context's certificate without its chain, in hex digits, or `nil` without a certificate.
    package var certificateDigest: String? {
        SSL_CTX_get0_certificate(raw).flatMap { Self.digest(of: $0) }?.hexDigits
    }

    static func digest(of certificate: OpaquePointer) -> [UInt8]? {
        var (digest, count) = ([UInt8](repeating: 0, count: 32), CUnsignedInt(0))
        return X509_digest(certificate, EVP_sha256(), &digest, &count) == 1 ? digest : nil
    }

    /// The first expiry, in seconds since 1970, of the certificate and the chain's certificates that clients need, or `nil`.
    package var certificateEnd: Int64? {
        guard let leaf = SSL_CTX_get0_certificate(raw) else { return nil }
        let ends = ([leaf] + Self.needed(leaf, chainOfFile)).compactMap { Self.end(of: $0) }
        return ends.min()
    }

    /// The last expiry, in seconds since 1970, of the authorities for client certificates, or `nil` without these.
    ///
    /// Every client is refused from then on.
    package var clientAuthoritiesEnd: Int64? { clientAuthorities.compactMap { Self.end(of: $0) }.max() }

    /// The trusted authorities of a server that requires client certificates.
    private var clientAuthorities: [OpaquePointer] {
        guard SSL_CTX_get_verify_mode(raw) & SSL_VERIFY_FAIL_IF_NO_PEER_CERT != 0,
            let objects = X509_STORE_get0_objects(SSL_CTX_get_cert_store(raw))
        else { return [] }
        return (0..<max(0, OPENSSL_sk_num(objects))).compactMap {
            X509_OBJECT_get0_X509(OpaquePointer(OPENSSL_sk_value(objects, $0)))
        }
    }

    private static func end(of certificate: OpaquePointer) -> Int64? {
        var (days, seconds): (CInt, CInt) = (0, 0)
        guard let epoch = ASN1_TIME_set(nil, 0) else { return nil }
        defer { ASN1_STRING_free(epoch) }
        guard ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate)) == 1 else { return nil }
        return Int64(days) * 86_400 + Int64(seconds)
    }

    /// Returns the certificates of the file on a client's path from the leaf to a root.
    ///
    /// A self-signed root in the file counts as trusted. An expired certificate is on the path only if no other path exists.
    private static func needed(_ leaf: OpaquePointer, _ chain: OpaquePointer?) -> [OpaquePointer] {
        let others = certificates(of: chain)
        guard !others.isEmpty, let store = X509_STORE_new() else { return [] }
        defer { X509_STORE_free(store) }
        X509_STORE_set_default_paths(store)
        for other in others where X509_self_signed(other, 0) == 1 { X509_STORE_add_cert(store, other) }
        guard let check = X509_STORE_CTX_new() else { return others }
        defer {
            X509_STORE_CTX_free(check)
            OpenSSLErrors.forget()
        }
        guard X509_STORE_CTX_init(check, store, leaf, chain) == 1 else { return others }
        let isWhole = X509_verify_cert(check) == 1
        var way = certificates(of: X509_STORE_CTX_get0_chain(check)).filter(others.contains)
        // The last certificate is an expired cross-signature of a root. Clients that trust the root do not need it after a valid
        // intermediate.
        if !isWhole, way.count > 1, let last = way.last, dateFault(last) != nil, X509_self_signed(last, 0) != 1 {
            way.removeLast()
        }
        return way
    }

    private func authorityFindings(_ seconds: Int64) -> [CertificateFinding] {
        let authorities = clientAuthorities
        // If one authority is valid, some clients can connect, so the finding is only a warning.
        let isAnyGood = authorities.contains { Self.dateFault($0) == nil }
        return authorities.flatMap { authority in
            Self.dateFindings(authority, "clientAuthorities' \(Self.subject(of: authority))", seconds).map {
                CertificateFinding(
                    weight: isAnyGood ? .unwise : $0.weight,
                    description: $0.description + "; clients whose certificates it signed are refused then")
            }
        }
    }

    /// Returns the reason, other than a date, why a client that has only the root may reject the certificate, or `nil`.
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
            let issuer = name(X509_get_issuer_name(last))
            let end = last == leaf ? "" : "; if \(issuer) is the root that clients have, ignore this"
            return "the file does not have the certificate of the issuer, \(issuer): clients that do not have it "
                + "themselves fail; append it to the file" + end
        default:
            let text = X509_verify_cert_error_string(Int(error)).map { String(cString: $0) } ?? "error \(error)"
            return "the chain in the file is not valid: \(text)"
        }
    }

    static func subject(of certificate: OpaquePointer) -> String { name(X509_get_subject_name(certificate)) }

    /// Returns a name such as `/O=Example/CN=Example CA`, at most 256 characters, with non-ASCII characters escaped.
    private static func name(_ name: OpaquePointer?) -> String {
        var buffer = [CChar](repeating: 0, count: 257)
        guard let name, X509_NAME_oneline(name, &buffer, CInt(buffer.count)) != nil else { return "of no name" }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
