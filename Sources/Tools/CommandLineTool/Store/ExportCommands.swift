internal import Delivery
internal import Foundation
internal import MessageStore
internal import Platform
internal import TextForms

extension StoreCommands {
    static let place =
        "A folder, as the gateway's store.path names it; or redis://HOST:PORT[,HOST:PORT…][/NAME], NAME as in cluster.name "
        + "(default: longwire)."

    static let export = CommandSyntax(
        name: "store export", summary: "Writes the store of stopped gateways as one portable file, or to a pipe.",
        operands: [
            ("FROM", "The store; it is not changed. \(place)"),
            ("FILE", "The file to create, which must not exist; - is standard output."),
        ], options: RedisOptions.all,
        notes: [
            "The file has every row of the store with checksums, from either engine; store import makes a store of either engine "
                + "of it. Rows, bytes and a digest of each table are printed on standard error. The file holds secrets of "
                + "devices and apps: only its owner can read it; protect it like the store.",
            "The file gets its name when all of it is on the disk, and its last block marks it as complete. "
                + "Exit code 1 if a gateway uses the store, or FILE exists.",
        ]
    ) { arguments, context in
        let (from, file) = (arguments.operands[0], arguments.operands[1])
        let source = try CopyPlaces.place(from, arguments)
        defer { source.close() }
        let target = try ExportTarget(file)
        var isDone = false
        defer { if !isDone { target.abandon() } }
        let sums = try StoreExport.write(
            source, to: file, release: CommandLineTool.version, put: target.put, report: context.complain)
        try target.finish()
        isDone = true
        context.complain("exported \(total(sums)), \(target.byteCount) bytes of the file")
        return .done
    }

    static let importing = CommandSyntax(
        name: "store import", summary: "Makes a store of a file of store export, and compares it with the file.",
        operands: [
            ("FILE", "The file; - is standard input."),
            ("TO", "The store to create, empty or missing. \(place)"),
        ],
        options: [
            .flag("replace", "Removes the contents of TO, for example an unfinished import."),
            .value("parts", "N", "Parts of a new cluster, as in cluster.parts: a power of two up to 256. Default: 16."),
        ] + RedisOptions.all,
        notes: [
            "A damaged or shortened file is refused with the byte position of the fault. A file that can be read twice is checked "
                + "before TO is changed; a pipe is checked during the import.",
            "No gateway starts on TO before the import has ended; after an interruption --replace begins again.",
        ]
    ) { arguments, context in
        let (file, to) = (arguments.operands[0], arguments.operands[1])
        let source = try ExportSource(file)
        if source.isSeekable {
            var reader = try ExportReader(file, take: source.take)
            while try reader.nextRows() != nil {}
            try source.rewind()
        }
        let target = try CopyPlaces.place(to, arguments)
        defer { target.close() }
        let sums = try StoreExport.read(
            file, into: target, isReplacing: arguments.has("replace"), take: source.take, report: context.write)
        context.write("imported \(total(sums)); the store is what the export has")
        return .done
    }

    static func total(_ sums: [StoreKey.Table: TableSum]) -> String {
        let (rows, bytes) = sums.values.reduce((0, 0)) { ($0.0 + $1.rowCount, $0.1 + $1.byteCount) }
        return "\(rows) rows, \(bytes) bytes"
    }
}

/// The target of an export: standard output, or a new file that is renamed to its name at the end.
private final class ExportTarget {
    private let name: String
    private let handle: FileHandle
    private(set) var byteCount = 0

    private var isPipe: Bool { name == "-" }
    private var partName: String { name + ".part" }

    init(_ name: String) throws {
        self.name = name
        guard name != "-" else {
            handle = .standardOutput
            return
        }
        guard !FileSystem.exists(name) else {
            throw CommandFailure.refused("\(name) is there already: remove it, or name another file")
        }
        guard
            FileManager.default.createFile(
                atPath: name + ".part", contents: nil, attributes: [.posixPermissions: 0o600]),
            let handle = FileHandle(forWritingAtPath: name + ".part")
        else { throw CommandFailure.refused("\(name).part cannot be made: look at the folder's rights and room") }
        self.handle = handle
    }

    func put(_ bytes: [UInt8]) throws {
        if isPipe {
            let outcome = bytes.withUnsafeBytes {
                BoundedWriter.write($0, to: FileHandle.standardOutput.fileDescriptor)
            }
            if case .failed(let error) = outcome { CommandContext.endUnwritten(error.code) }
        } else {
            do {
                try handle.write(contentsOf: Data(bytes))
            } catch {
                throw CommandFailure.refused("\(partName) cannot be written after \(byteCount) bytes: \(error)")
            }
        }
        byteCount += bytes.count
    }

    func finish() throws {
        guard !isPipe else { return }
        try handle.synchronize()
        try handle.close()
        try FileSystem.rename(partName, to: name)
        let folder = name.contains("/") ? String(name[..<(name.lastIndex(of: "/") ?? name.startIndex)]) : "."
        try FileSystem.synchronizeDirectory(folder.isEmpty ? "/" : folder)
    }

    func abandon() {
        guard !isPipe else { return }
        try? handle.close()
        try? FileSystem.removeFile(partName)
    }
}

private final class ExportSource {
    private let name: String
    private let handle: FileHandle
    /// Whether the source can be read again from its start.
    let isSeekable: Bool

    init(_ name: String) throws {
        self.name = name
        if name == "-" {
            (handle, isSeekable) = (.standardInput, false)
            return
        }
        guard let handle = FileHandle(forReadingAtPath: name) else {
            throw CommandFailure.refused("\(name) cannot be read: is it there?")
        }
        self.handle = handle
        isSeekable = (try? handle.seek(toOffset: 0)) != nil
    }

    /// Returns up to `count` bytes, fewer at the end.
    func take(_ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            guard let more = try handle.read(upToCount: count - bytes.count), !more.isEmpty else { break }
            bytes += more
        }
        return bytes
    }

    func rewind() throws { try handle.seek(toOffset: 0) }
}
