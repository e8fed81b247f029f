/// A text to find in other texts, in time proportional to the searched text (Knuth, Morris and Pratt).
///
/// `String.contains` prepares its search anew for each text and takes microseconds, which callers can multiply.
package struct TextPattern: Sendable {
    private let bytes: [UInt8]
    /// For each byte, the length of the longest proper prefix that ends with it.
    private let borders: [Int]

    package init(_ text: String) {
        bytes = Array(text.utf8)
        var borders = [Int](repeating: 0, count: bytes.count)
        for place in bytes.indices.dropFirst() {
            var length = borders[place - 1]
            while length > 0, bytes[length] != bytes[place] { length = borders[length - 1] }
            borders[place] = bytes[length] == bytes[place] ? length + 1 : 0
        }
        self.borders = borders
    }

    /// Returns whether the bytes contain the text.
    package func isIn(_ text: some Sequence<UInt8>) -> Bool {
        var length = 0
        guard !bytes.isEmpty else { return true }
        for byte in text {
            while length > 0, bytes[length] != byte { length = borders[length - 1] }
            if bytes[length] == byte { length += 1 }
            if length == bytes.count { return true }
        }
        return false
    }
}
