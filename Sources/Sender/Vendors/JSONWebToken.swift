internal import TextForms

/// A JSON Web Token in the compact form (RFC 7515, section 7.1).
enum JSONWebToken {
    /// - Returns: the token, or `nil` if `sign` returns no signature.
    static func text(header: JSONTree, claims: JSONTree, sign: ([UInt8]) -> [UInt8]?) -> String? {
        let part = Base64.encode(header.bytes, .url) + "." + Base64.encode(claims.bytes, .url)
        return sign(Array(part.utf8)).map { part + "." + Base64.encode($0, .url) }
    }
}
