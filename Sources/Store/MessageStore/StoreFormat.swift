internal import Platform

/// The format version of a store's folder, read from its file `format`.
struct StoreFormat {
    static let current = 1
    private static let prefix = "longwire store "

    let found: Int

    /// Reads the version, and writes the current one into a new folder.
    ///
    /// - Throws: `.unknownFormat`, `.missingFormat`, `.newerFormat`, or an error of reading the file.
    init(of folder: String) throws(StoreError) {
        let path = folder + "/format"
        do throws(SystemError) {
            let bytes: [UInt8]
            do throws(SystemError) {
                bytes = try FileSystem.read(path)
            } catch {
                // Write the file only if it certainly does not exist; any other failure may hide a version. The format file is
                // the first file of a new folder, so it is lost if a database or a journal exists.
                guard error.isNotFound else { throw error }
                guard !FileSystem.exists(folder + "/rows"), !FileSystem.exists(folder + "/journal") else {
                    throw SystemError(operation: "missing", subject: path, code: 0)
                }
                try FileSystem.replace(path, with: Array("\(Self.prefix)\(Self.current)\n".utf8))
                found = Self.current
                return
            }
            let text = String(decoding: bytes, as: UTF8.self)
            let line = text.prefix { $0 != "\n" }
            guard line.hasPrefix(Self.prefix), let found = Int(line.dropFirst(Self.prefix.count)), found > 0
            else {
                throw SystemError(operation: "format", subject: path, code: 0)
            }
            self.found = found
        } catch {
            switch error.operation {
            case "format": throw .unknownFormat(file: path)
            case "missing": throw .missingFormat(file: path)
            default: throw StoreError(error)
            }
        }
        guard found <= Self.current else {
            throw .newerFormat(folder: folder, found: found, supported: Self.current)
        }
    }
}

extension EmbeddedStore {
    /// Throws `.backup` unless the folder has a store that this process can read.
    package static func requireStore(in folder: String) throws(StoreError) {
        try require("format", in: folder, orFail: "there is no store in \(folder)")
    }

    /// Throws `.backup` with `absence` if the folder lacks the file, or with the cause if the folder cannot be read.
    static func require(_ file: String, in folder: String, orFail absence: String) throws(StoreError) {
        let isPresent: Bool
        do throws(SystemError) {
            isPresent = try FileSystem.isPresent("\(folder)/\(file)")
        } catch {
            let advice = error.isForbidden ? "; run it as the gateway's user" : ""
            throw .backup(what: "\(folder) cannot be read: \(error.reason)\(advice)")
        }
        guard isPresent else { throw .backup(what: absence) }
    }
}
