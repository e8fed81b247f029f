// Digests, message authentication and randomness from OpenSSL 3. No C type leaves this module.

internal import COpenSSL

/// SHA-256 digests as pure functions, safe on any thread.
package enum SHA256 {
    /// A digest as four words in network order: its first byte is the top byte of `words.0`.
    package struct Digest: Equatable, Sendable {
        package var words: (UInt64, UInt64, UInt64, UInt64)

        package var bytes: [UInt8] {
            var bytes: [UInt8] = []
            bytes.reserveCapacity(32)
            for word in [words.0, words.1, words.2, words.3] {
                for shift in stride(from: 56, through: 0, by: -8) {
                    bytes.append(UInt8(truncatingIfNeeded: word >> UInt64(shift)))
                }
            }
            return bytes
        }

        /// 64 lower-case hex digits.
        package var hex: String { bytes.hexDigits }

        package static func == (left: Digest, right: Digest) -> Bool {
            left.words == right.words
        }
    }

    /// Returns the digest of contiguous bytes without allocating.
    package static func digest(_ bytes: UnsafeRawBufferPointer) -> Digest {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { output in
            // The one-shot function would look up the algorithm and allocate (COpenSSL's `shim.h`). These functions cannot fail.
            var state = SHA256_CTX()
            SHA256_Init(&state)
            SHA256_Update(&state, bytes.baseAddress, bytes.count)
            SHA256_Final(output.baseAddress?.assumingMemoryBound(to: UInt8.self), &state)
            return Digest(reading: UnsafeRawBufferPointer(output))
        }
    }

    package static func digest(_ bytes: [UInt8]) -> Digest { bytes.withUnsafeBytes { digest($0) } }

    package struct Running: ~Copyable {
        private var state = SHA256_CTX()

        package init() { SHA256_Init(&state) }

        package mutating func add(_ bytes: UnsafeRawBufferPointer) {
            SHA256_Update(&state, bytes.baseAddress, bytes.count)
        }

        package consuming func digest() -> Digest {
            withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { output in
                SHA256_Final(output.baseAddress?.assumingMemoryBound(to: UInt8.self), &state)
                return Digest(reading: UnsafeRawBufferPointer(output))
            }
        }
    }

    package static func digest(joining parts: [[UInt8]]) -> Digest { digest(Array(parts.joined())) }
}

extension SHA256.Digest {
    fileprivate init(reading buffer: UnsafeRawBufferPointer) {
        words = (
            UInt64(bigEndian: buffer.loadUnaligned(fromByteOffset: 0, as: UInt64.self)),
            UInt64(bigEndian: buffer.loadUnaligned(fromByteOffset: 8, as: UInt64.self)),
            UInt64(bigEndian: buffer.loadUnaligned(fromByteOffset: 16, as: UInt64.self)),
            UInt64(bigEndian: buffer.loadUnaligned(fromByteOffset: 24, as: UInt64.self))
        )
    }
}

/// HMAC-SHA256 (RFC 2104) as pure functions, safe on any thread.
package enum HMACSHA256 {
    /// Returns the 32-byte code of `message` under `key`, both of any length.
    package static func code(key: [UInt8], message: [UInt8]) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: 32)
        var length: UInt32 = 0
        let result = key.withUnsafeBytes { key in
            message.withUnsafeBufferPointer { message in
                // An empty key needs a pointer, because OpenSSL takes NULL for "the key set before".
                withUnsafeTemporaryAllocation(byteCount: 1, alignment: 1) { spare in
                    HMAC(
                        EVP_sha256(), key.baseAddress ?? UnsafeRawPointer(spare.baseAddress!), Int32(key.count),
                        message.baseAddress, message.count, &output, &length)
                }
            }
        }
        precondition(result != nil && length == 32, "OpenSSL could not compute HMAC-SHA256")
        return output
    }

    /// Returns whether `code` authenticates `message` under `key`; the comparison takes constant time.
    package static func isCode(_ code: [UInt8], of message: [UInt8], key: [UInt8]) -> Bool {
        constantTimeEquals(code, Self.code(key: key, message: message))
    }
}

/// Compares secrets in a time that depends on their lengths only.
package func constantTimeEquals(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    return left.withUnsafeBytes { left in
        right.withUnsafeBytes { right in CRYPTO_memcmp(left.baseAddress, right.baseAddress, left.count) == 0 }
    }
}

/// Random bytes from OpenSSL's generator, which the kernel seeds; safe on any thread.
package enum SecureRandom {
    package static func bytes(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        // Without randomness every secret would be guessable, so the process must end.
        precondition(count == 0 || RAND_bytes(&bytes, Int32(count)) == 1, "OpenSSL has no randomness")
        return bytes
    }

    package static func fill(_ memory: UnsafeMutableRawBufferPointer) {
        guard let start = memory.baseAddress, !memory.isEmpty else { return }
        let result = RAND_bytes(start.assumingMemoryBound(to: UInt8.self), Int32(memory.count))
        precondition(result == 1, "OpenSSL has no randomness")
    }

    package static func word() -> UInt64 {
        bytes(8).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
    }

    package static func words() -> (UInt64, UInt64) { (word(), word()) }
}

extension Sequence<UInt8> {
    /// Two lower-case hex digits per byte.
    package var hexDigits: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}

/// SHA-1, only for identifiers that other programs derive with it; no secrecy or trust depends on it.
package enum SHA1 {
    /// Returns 40 lower-case hex digits.
    package static func hex(_ bytes: [UInt8]) -> String {
        digest(bytes).hexDigits
    }

    package static func digest(_ bytes: [UInt8]) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: 20)
        var count: UInt32 = 0
        let result = EVP_Digest(bytes, bytes.count, &output, &count, EVP_sha1(), nil)
        precondition(result == 1 && count == 20, "OpenSSL has no SHA-1")
        return output
    }
}

/// MD5, only for request signatures that vendors prescribe; no trust of ours depends on it.
package enum MD5 {
    /// Returns 32 lower-case hex digits.
    package static func hex(_ bytes: [UInt8]) -> String {
        var output = [UInt8](repeating: 0, count: 16)
        var count: UInt32 = 0
        let result = EVP_Digest(bytes, bytes.count, &output, &count, EVP_md5(), nil)
        precondition(result == 1 && count == 16, "OpenSSL has no MD5")
        return output.hexDigits
    }
}
