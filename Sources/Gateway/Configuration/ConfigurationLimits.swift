package enum ConfigurationLimits {
    package static let clientNameCount = 64
    /// The size limit of the file, far above any real one; a mistyped path to a large file fails early.
    package static let fileByteCount = 4 << 20
    /// The size limit of a secret, token or certificate file.
    package static let secretFileByteCount = 64 << 10
    /// The limit of nested values; a configuration needs four levels.
    package static let nestingDepth = 32
    package static let reportedProblemCount = 50
    package static let appCount = 1_000
    package static let credentialCount = 1_000
    /// The most secrets that are valid at once: an old one, a new one, and one in reserve.
    package static let overlappingSecretCount = 3
}
