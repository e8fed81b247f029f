internal import Platform

/// The number of this owner of a folder, above those of all owners before it; the last one taken is in the file `epoch`.
///
/// The number is not in the journal's folder: an operator may move that away, and rows in the database keep the numbers of
/// runs.
enum StoreEpoch {
    private static let prefix = "longwire epoch "
    /// No folder is opened that often; what is above was not written by a store.
    private static let largest: UInt64 = 1 << 62

    /// Whether a number was ever taken.
    static func exists(in folder: String) -> Bool { FileSystem.exists(path(folder)) }

    private static func path(_ folder: String) -> String { folder + "/epoch" }

    /// Takes the next number, durable on return.
    ///
    /// - Parameters:
    ///   - folder: the store's.
    ///   - generation: the highest that a file of the journal has. A folder without the file `epoch` has numbers up to it.
    /// - Returns: the number.
    /// - Throws: `.unknownEpoch` for a file that says something else, and what reading or writing it met.
    static func take(of folder: String, above generation: UInt64) throws(StoreError) -> UInt64 {
        let path = path(folder)
        do throws(SystemError) {
            var last: UInt64 = 0
            do throws(SystemError) {
                let text = String(decoding: try FileSystem.read(path), as: UTF8.self)
                guard let number = number(text) else { throw SystemError(operation: "epoch", subject: path, code: 0) }
                last = number
            } catch {
                // Any other failure hides a number.
                guard error.isNotFound else { throw error }
            }
            let next = max(last, generation) + 1
            try FileSystem.replace(path, with: Array("\(prefix)\(next)\n".utf8))
            return next
        } catch {
            if error.operation == "epoch" { throw .unknownEpoch(file: path) }
            throw StoreError(error)
        }
    }

    private static func number(_ text: String) -> UInt64? {
        guard text.hasPrefix(prefix), text.hasSuffix("\n"),
            let number = UInt64(text.dropFirst(prefix.count).dropLast()),
            number < largest
        else { return nil }
        return number
    }
}
