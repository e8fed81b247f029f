internal import COpenSSL

/// A pre-shared key of a group of processes, with the identity under which peers offer it.
package struct PresharedKey: Sendable {
    /// The minimum size of a secret in bytes, equal to the size of the key.
    package static let secretByteCount = 32

    /// The identity sent in plain text before the handshake: the group and the mark, which reveal nothing about the secret.
    let identity: [UInt8]
    let key: [UInt8]
    /// A fingerprint of the secret within its group: 16 hexadecimal digits.
    package let mark: String

    /// Derives a group's key from a secret with HKDF-SHA256, so that groups with the same secret have different keys.
    ///
    /// - Throws: when the secret is shorter than `secretByteCount`.
    package init(secret: [UInt8], group: String) throws(TLSFailure) {
        guard secret.count >= Self.secretByteCount else {
            throw TLSFailure(
                "the secret of the cluster has \(secret.count) bytes and must have \(Self.secretByteCount) at least; "
                    + "make one with: openssl rand -base64 48")
        }
        let marked = HKDFSHA256.key(
            secret: secret, salt: Array("longwire link mark 1".utf8), information: Array(group.utf8))
        mark = marked.prefix(8).hexDigits
        identity = Array("longwire link 1 \(mark) \(group)".utf8)
        key = HKDFSHA256.key(secret: secret, salt: Array("longwire link 1".utf8), information: Array(group.utf8))
    }
}

/// HKDF with SHA-256 (RFC 5869) for keys of 32 bytes.
package enum HKDFSHA256 {
    /// Returns the first 32 bytes derived from the secret with this salt and purpose.
    package static func key(secret: [UInt8], salt: [UInt8], information: [UInt8]) -> [UInt8] {
        let extracted = HMACSHA256.code(key: salt, message: secret)
        return HMACSHA256.code(key: extracted, message: information + [1])
    }
}

/// Pre-shared keys for OpenSSL's callbacks.
///
/// The context stores this object's address, so the object must outlive the context. A client offers the first key. A server
/// accepts every key.
final class PresharedKeyMemory {
    private struct Entry {
        let identity: UnsafeMutableBufferPointer<UInt8>
        let key: [UInt8]
    }

    /// The ex_data index that OpenSSL reserves for the application.
    private static let place: CInt = 0
    /// The protocol's number of TLS_AES_128_GCM_SHA256.
    private static let suite: [UInt8] = [0x13, 0x01]

    private let entries: [Entry]

    init(_ keys: [PresharedKey]) {
        precondition(!keys.isEmpty, "a context of pre-shared keys has one at least")
        entries = keys.map { key in
            let identity = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: key.identity.count)
            _ = identity.initialize(from: key.identity)
            return Entry(identity: identity, key: key.key)
        }
    }

    deinit { for entry in entries { entry.identity.deallocate() } }

    private static func of(_ session: OpaquePointer?) -> PresharedKeyMemory? {
        guard let session, let context = SSL_get_SSL_CTX(session), let data = SSL_CTX_get_ex_data(context, place) else {
            return nil
        }
        return Unmanaged<PresharedKeyMemory>.fromOpaque(data).takeUnretainedValue()
    }

    func install(in context: OpaquePointer) {
        SSL_CTX_set_ex_data(context, Self.place, Unmanaged.passUnretained(self).toOpaque())
        SSL_CTX_set_psk_find_session_callback(context) { session, identity, count, found in
            found?.pointee = nil
            guard let memory = PresharedKeyMemory.of(session), let identity,
                let entry = memory.entries.first(where: {
                    UnsafeBufferPointer(start: identity, count: count).elementsEqual($0.identity)
                })
            else {
                // The peer has another group or secret. The handshake continues without a key and fails for lack of a
                // certificate.
                return 1
            }
            found?.pointee = PresharedKeyMemory.makeSession(for: session, entry.key)
            return found?.pointee == nil ? 0 : 1
        }
        SSL_CTX_set_psk_use_session_callback(context) { session, digest, identity, count, found in
            found?.pointee = nil
            identity?.pointee = nil
            count?.pointee = 0
            guard let entry = PresharedKeyMemory.of(session)?.entries.first else { return 0 }
            // OpenSSL passes a digest after a HelloRetryRequest has fixed the suite. The key works only with SHA-256.
            if let digest, EVP_MD_get_type(digest) != NID_sha256 { return 1 }
            found?.pointee = PresharedKeyMemory.makeSession(for: session, entry.key)
            guard found?.pointee != nil else { return 0 }
            identity?.pointee = UnsafePointer(entry.identity.baseAddress)
            count?.pointee = entry.identity.count
            return 1
        }
    }

    /// Returns a session that represents the key; OpenSSL frees it.
    private static func makeSession(for connection: OpaquePointer?, _ key: [UInt8]) -> OpaquePointer? {
        guard let session = SSL_SESSION_new(), let cipher = SSL_CIPHER_find(connection, suite),
            SSL_SESSION_set1_master_key(session, key, key.count) == 1, SSL_SESSION_set_cipher(session, cipher) == 1,
            SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1
        else { return nil }
        return session
    }
}
