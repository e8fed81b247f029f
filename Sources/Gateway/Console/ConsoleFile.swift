internal import CConsole

/// A file of the console, the web page of the admin listener; the source is in Sources/Adapters/C/CConsole/assets and is embedded
/// in the program.
package struct ConsoleFile: Sendable {
    /// The file's name below `/console/`.
    package let name: String
    package let contentType: String
    package let bytes: [UInt8]

    /// All files; the first one is the page.
    package static let all: [ConsoleFile] = {
        var files: [ConsoleFile] = []
        while let file = longwire_console_file(files.count)?.pointee {
            files.append(
                ConsoleFile(
                    name: String(cString: file.name), contentType: String(cString: file.content_type),
                    bytes: Array(UnsafeBufferPointer(start: file.bytes, count: file.byte_count))))
        }
        return files
    }()
}
