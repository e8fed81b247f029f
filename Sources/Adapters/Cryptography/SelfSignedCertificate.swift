internal import COpenSSL

/// Self-signed P-256 certificates for tests and trials on one machine.
package enum SelfSignedCertificate {
    /// Writes a PEM certificate and its key, valid from one hour ago.
    ///
    /// - Parameters:
    ///   - names: the subject's names in OpenSSL's form: `DNS:localhost,IP:127.0.0.1`.
    ///   - days: the validity in days from now.
    ///   - certificatePath: the certificate's file, which is replaced.
    ///   - keyPath: the key's file without a passphrase, which is replaced.
    /// - Throws: `TLSFailure` when a file cannot be written or the names are invalid. One file may have been written then.
    package static func write(
        names: String, days: Int, certificatePath: String, keyPath: String
    ) throws(TLSFailure) {
        guard let key = makeKey() else { throw TLSFailure("no P-256 key: \(OpenSSLErrors.takeLast())") }
        defer { EVP_PKEY_free(key) }
        guard let certificate = X509_new() else { throw TLSFailure("out of memory") }
        defer { X509_free(certificate) }
        X509_set_version(certificate, 2)
        var serial: UInt64 = 0
        withUnsafeMutableBytes(of: &serial) { _ = RAND_bytes($0.baseAddress, CInt($0.count)) }
        ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1)
        X509_gmtime_adj(X509_getm_notBefore(certificate), -3600)
        X509_gmtime_adj(X509_getm_notAfter(certificate), days * 86400)
        X509_set_pubkey(certificate, key)
        let subject = X509_get_subject_name(certificate)
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, "longwire trial", -1, -1, 0)
        X509_set_issuer_name(certificate, subject)
        guard let extra = X509V3_EXT_conf_nid(nil, nil, NID_subject_alt_name, names) else {
            throw TLSFailure("\(names) is no list of names: \(OpenSSLErrors.takeLast())")
        }
        X509_add_ext(certificate, extra, -1)
        X509_EXTENSION_free(extra)
        guard X509_sign(certificate, key, EVP_sha256()) > 0 else {
            throw TLSFailure("the certificate could not be signed: \(OpenSSLErrors.takeLast())")
        }
        try write(to: certificatePath) { PEM_write_bio_X509($0, certificate) }
        try write(to: keyPath) { PEM_write_bio_PrivateKey($0, key, nil, nil, 0, nil, nil) }
    }

    static func makeKey() -> OpaquePointer? {
        guard let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil) else { return nil }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_keygen(context, &key) == 1
        else { return nil }
        return key
    }

    private static func write(to path: String, _ body: (OpaquePointer) -> CInt) throws(TLSFailure) {
        guard let file = BIO_new_file(path, "w") else {
            throw TLSFailure("\(path) cannot be written: \(OpenSSLErrors.takeLast())")
        }
        defer { BIO_free(file) }
        guard body(file) == 1 else { throw TLSFailure("\(path) cannot be written: \(OpenSSLErrors.takeLast())") }
    }
}
