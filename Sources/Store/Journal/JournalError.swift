package import Platform

/// Why the journal cannot be used.
package enum JournalError: Error, Equatable, CustomStringConvertible {
    /// A file could not be read, written or synced.
    case system(SystemError)
    /// Bytes that were synced are gone or changed: the disk, a copy or a person damaged them.
    case damaged(file: String, offset: Int, what: String)

    package var description: String {
        switch self {
        case .system(let error): "\(error)"
        case .damaged(let file, let offset, let what): "\(file) is damaged at byte \(offset): \(what)"
        }
    }
}
