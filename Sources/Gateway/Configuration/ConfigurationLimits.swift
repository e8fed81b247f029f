/// Bounds of the configuration file itself.
package enum ConfigurationLimits {
    /// Names that a client's certificate may have, of one listener.
    package static let clientNameCount = 64
    /// Far above any real file; keeps a mistyped path (a database, say) from being read whole.
    package static let fileByteCount = 4 << 20
    /// A secret, token or certificate file.
    package static let secretFileByteCount = 64 << 10
    /// The schema itself is four levels deep.
    package static let nestingDepth = 32
    /// Problems printed at once; more than this is one misunderstanding, not a hundred mistakes.
    package static let reportedProblemCount = 50
    package static let appCount = 1_000
    package static let credentialCount = 1_000
    /// Old and new, and one to spare.
    package static let overlappingSecretCount = 3
}
