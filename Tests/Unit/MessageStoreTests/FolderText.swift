import Foundation

/// A data folder as text: per file a line with its name, its size and the length without trailing zeros, then that content in
/// base64.
enum FolderText {
    /// Returns whether a file has no influence on the rows, or RocksDB creates it again.
    private static func isLeftOut(_ name: String) -> Bool {
        name == "lock" || ["rows/LOG", "rows/OPTIONS-", "rows/LOCK"].contains { name.hasPrefix($0) }
    }

    static func pack(_ folder: String) throws -> String {
        var text = ""
        for name in try FileManager.default.subpathsOfDirectory(atPath: folder).sorted() where !isLeftOut(name) {
            var isDirectory: ObjCBool = false
            let path = folder + "/" + name
            guard FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory), !isDirectory.boolValue else {
                continue
            }
            let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
            let count = (bytes.lastIndex { $0 != 0 } ?? -1) + 1
            text += "file \(name) \(bytes.count) \(count)\n"
            text += Data(bytes[..<count]).base64EncodedString(options: [.lineLength76Characters, .endLineWithLineFeed])
            text += count > 0 ? "\n" : ""
        }
        return text
    }

    static func unpack(_ text: String, into folder: String) throws {
        var name: String?
        var sizes = (whole: 0, given: 0)
        var base64 = ""
        func finish() throws {
            guard let name else { return }
            let path = folder + "/" + name
            var bytes = [UInt8](Data(base64Encoded: base64) ?? Data())
            guard bytes.count == sizes.given else { throw WaitFailed(description: "\(name) is not what was packed") }
            bytes += [UInt8](repeating: 0, count: sizes.whole - bytes.count)
            let parent = URL(fileURLWithPath: path).deletingLastPathComponent()
            try FileManager.default.createDirectory(at: parent, withIntermediateDirectories: true)
            try Data(bytes).write(to: URL(fileURLWithPath: path))
        }
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.first == "file", words.count == 4 else {
                base64 += line
                continue
            }
            try finish()
            (name, base64) = (String(words[1]), "")
            sizes = (Int(words[2]) ?? 0, Int(words[3]) ?? 0)
        }
        try finish()
    }
}
