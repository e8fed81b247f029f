// Corpora as text: one hexadecimal input per line. A line that starts with # describes the following inputs.

internal import Glibc

package enum Corpus {
    package struct Entry: Sendable {
        /// Counts from 1.
        package let line: Int
        package let bytes: [UInt8]
    }

    /// Returns the path of a target's corpus, relative to this source file.
    package static func path(of target: FuzzTarget, file: String = #filePath) -> String {
        let folders = file.split(separator: "/", omittingEmptySubsequences: false).dropLast(2)
        return folders.joined(separator: "/") + "/corpora/\(target.name).hex"
    }

    /// Reads a corpus.
    ///
    /// - Throws: `FuzzFailure` if the file is missing or a line is not hexadecimal.
    package static func read(_ path: String) throws -> [Entry] {
        guard let bytes = contents(path) else { throw FuzzFailure(description: "\(path) cannot be read") }
        var entries: [Entry] = []
        let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() where line.first != UInt8(ascii: "#") {
            // An empty line is the empty input, except at the end of the file.
            if line.isEmpty, index == lines.count - 1 { continue }
            guard let input = decode(line) else {
                throw FuzzFailure(description: "\(path):\(index + 1) is no hexadecimal")
            }
            entries.append(Entry(line: index + 1, bytes: input))
        }
        return entries
    }

    package static func encode(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        var high: UInt8?
        for digit in text {
            guard let value = Character(UnicodeScalar(digit)).hexDigitValue, digit < 0x80 else { return nil }
            if let first = high {
                bytes.append(first << 4 | UInt8(value))
                high = nil
            } else {
                high = UInt8(value)
            }
        }
        return high == nil ? bytes : nil
    }

    /// Returns a file's bytes, or `nil` if it cannot be read.
    package static func contents(_ path: String) -> [UInt8]? {
        guard let file = fopen(path, "rb") else { return nil }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = fread(&piece, 1, piece.count, file)
            guard count > 0 else { return bytes }
            bytes += piece[..<count]
        }
    }
}
