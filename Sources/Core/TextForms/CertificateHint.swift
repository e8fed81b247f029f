/// Hints that the commands print after a rejected certificate, chosen by the error text of OpenSSL or curl.
package enum CertificateHint {
    /// Returns `nil` if the error is not about a certificate.
    package static func text(_ reason: String, host: String) -> String? {
        let reason = reason.lowercased()
        func has(_ words: String...) -> Bool { words.contains { reason.contains($0) } }
        // Alerts sent by the peer come first: they are about this side's certificate.
        if has(" alert "), has("certificate", "unknown ca") {
            return
                "Hint: the listener takes only clients with a certificate that its operator's authority signed: give it with "
                + "--cert FILE and --key FILE."
        }
        if has("certificate has expired", "certificate is not yet valid") {
            return
                "Hint: the certificate of \(host) is out of its time; its operator has to renew it. Or this machine's clock "
                + "is wrong."
        }
        if has("mismatch", "does not match target host", "no alternative certificate subject name") {
            return "Hint: the certificate is not for \(host): give the gateway by a name that is in the certificate."
        }
        guard has("certificate verify failed", "ssl certificate problem", "peer certificate") else { return nil }
        return
            "Hint: the certificate is not one that this machine trusts for \(host). Is it from a private authority? "
            + "Name its certificate with --ca FILE."
    }
}
