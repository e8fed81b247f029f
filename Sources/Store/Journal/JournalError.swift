package import Platform

package enum JournalError: Error, Equatable, CustomStringConvertible {
    /// A file could not be read, written or synced.
    case system(SystemError)
    /// Synced bytes are missing or changed.
    case damaged(file: String, offset: Int, what: String)

    package var description: String {
        switch self {
        case .system(let error): "\(error)"
        case .damaged(let file, let offset, let what): "\(file) is damaged at byte \(offset): \(what)"
        }
    }
}
