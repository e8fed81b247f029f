internal import Platform

/// The version of a store's folder: what its file `format` says.
struct StoreFormat {
    /// The version of what this code reads and writes.
    static let current = 1
    private static let prefix = "longwire store "

    let found: Int

    /// Reads the version; a new folder gets the current one.
    ///
    /// - Throws: `.unknownFormat`, `.missingFormat`, `.newerFormat`, or what reading the file met.
    init(of folder: String) throws(StoreError) {
        let path = folder + "/format"
        do throws(SystemError) {
            let bytes: [UInt8]
            do throws(SystemError) {
                bytes = try FileSystem.read(path)
            } catch {
                // Only a file that is certainly not there may be written: any other failure hides a version. It is the first
                // file of a new folder, so beside a database or a journal it was lost.
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
