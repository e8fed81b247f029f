package enum ConfigurationLimits {
    package static let clientNameCount = 64
    /// The file's size, far above any real file; it prevents reading a large file after a mistyped path.
    package static let fileByteCount = 4 << 20
    /// The size of a secret, token or certificate file.
    package static let secretFileByteCount = 64 << 10
    /// The configuration itself is four levels deep.
    package static let nestingDepth = 32
    package static let reportedProblemCount = 50
    package static let appCount = 1_000
    package static let credentialCount = 1_000
    /// An old secret, a new one, and one in reserve.
    package static let overlappingSecretCount = 3
}
