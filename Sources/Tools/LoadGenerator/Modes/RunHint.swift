internal import TextForms

enum RunHint {
    static func text(_ reason: String, _ credentials: Credentials) -> String? {
        let isOfTLS = reason.contains("TLS")
        if isOfTLS {
            let host = [credentials.device, credentials.senders, credentials.http, credentials.admin].first(
                where: \.isSecure)?.host
            if let hint = CertificateHint.text(reason, host: host ?? "the gateway") { return hint }
            if reason.contains("TLS handshake") {
                return
                    "Hint: this port may not speak TLS. Leave --tls, https:// or tls:// out, or give the port of the "
                    + "listener's tls.listen."
            }
            return nil
        }
        if !credentials.device.isSecure, reason.contains("a device's connection") {
            return
                "Hint: this port may want TLS: add --tls. By default devices connect to port 7000 (--device-address)."
        }
        if !credentials.senders.isSecure, reason.contains("a sender's connection") {
            return "Hint: this port may want TLS: write --senders-address tls://HOST:PORT."
        }
        if !credentials.http.isSecure, reason.contains("does not answer as HTTP") {
            return "Hint: this port may want TLS: write --http-address https://HOST:PORT."
        }
        return nil
    }
}
