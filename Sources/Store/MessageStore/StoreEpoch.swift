internal import Platform

/// The folder's owner number, stored in the file `epoch` and increased by each owner.
///
/// The file is outside the journal's folder: an operator may move that folder away, while rows in the database still name runs.
enum StoreEpoch {
    private static let prefix = "longwire epoch "
    /// The upper bound of valid numbers; a higher number was not written by a store.
    private static let largest: UInt64 = 1 << 62

    static func exists(in folder: String) -> Bool { FileSystem.exists(path(folder)) }

    private static func path(_ folder: String) -> String { folder + "/epoch" }

    /// Takes the next number, durable on return.
    ///
    /// - Parameters:
    ///   - folder: The store's folder.
    ///   - generation: The highest generation of the journal's files. Numbers up to it are used.
    /// - Returns: The number.
    /// - Throws: `.unknownEpoch` for an invalid file, or an error of reading or writing the file.
    static func take(of folder: String, above generation: UInt64) throws(StoreError) -> UInt64 {
        let path = path(folder)
        do throws(SystemError) {
            var last: UInt64 = 0
            do throws(SystemError) {
                let text = String(decoding: try FileSystem.read(path), as: UTF8.self)
                guard let number = number(text) else { throw SystemError(operation: "epoch", subject: path, code: 0) }
                last = number
            } catch {
                // Only a missing file means that there is no earlier number. Any other read error may hide one.
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
