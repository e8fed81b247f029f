internal import Cryptography
package import Wire

/// A credential of the admin listener, with its permissions.
package struct Credential: Sendable {
    package enum Permission: String, Sendable, CaseIterable { case handoff, trace, upstream, events, admin }

    package var name: String
    /// The visible apps; `nil` for all.
    package var apps: Set<AppKey>?
    /// `admin` includes all other permissions.
    package var may: Set<Permission>
    /// The digest of the token, which is not kept itself.
    private let digest: [UInt8]

    package init(name: String, token: String, apps: Set<AppKey>? = nil, may: Set<Permission>) {
        (self.name, self.apps, self.may) = (name, apps, may)
        digest = SHA256.digest(Array(token.utf8)).bytes
    }

    func permits(_ permission: Permission) -> Bool { may.contains(permission) || may.contains(.admin) }

    func sees(_ app: AppKey) -> Bool { apps?.contains(app) ?? true }

    func matches(_ digest: [UInt8]) -> Bool { constantTimeEquals(self.digest, digest) }
}

package struct CredentialSet: Sendable {
    private let credentials: [Credential]
    /// Whether no credential is configured and the only one was generated at start; then only loopback peers are served.
    package let isLoopbackOnly: Bool

    package init(_ credentials: [Credential], isLoopbackOnly: Bool = false) {
        (self.credentials, self.isLoopbackOnly) = (credentials, isLoopbackOnly)
    }

    func credential(authorization: UnsafeRawBufferPointer?) -> Credential? {
        guard let token = Self.bearer(authorization) else { return nil }
        let digest = SHA256.digest(token).bytes
        // All credentials are compared, so that the time does not reveal the position of the match.
        var found: Credential?
        for credential in credentials where credential.matches(digest) { found = found ?? credential }
        return found
    }

    /// Returns the token of a header `Authorization: Bearer …`.
    static func bearer(_ authorization: UnsafeRawBufferPointer?) -> [UInt8]? {
        guard let authorization, authorization.count > 7 else { return nil }
        let scheme = authorization.prefix(7).map { (65...90).contains($0) ? $0 + 32 : $0 }
        guard scheme.elementsEqual("bearer ".utf8) else { return nil }
        return Array(authorization.dropFirst(7).drop { $0 == UInt8(ascii: " ") })
    }
}
