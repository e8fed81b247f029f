internal import Glibc

/// One line on the terminal that is written over and over; silent where standard error is no terminal.
struct Progress {
    private let isShown: Bool
    private var width = 0

    init(isQuiet: Bool) { isShown = !isQuiet && isatty(STDERR_FILENO) == 1 }

    /// Shows `fraction` (0 to 1) of the phase as a bar, or none where its end is not known.
    mutating func show(_ text: String, fraction: Double? = nil) {
        guard isShown else { return }
        var line = text
        if let fraction {
            let filled = Int(min(1, max(0, fraction)) * 24)
            line =
                "[" + String(repeating: "#", count: filled) + String(repeating: ".", count: 24 - filled) + "] " + line
        }
        let padding = String(repeating: " ", count: max(0, width - line.count))
        width = line.count
        Self.line("\r" + line + padding)
    }

    mutating func clear() {
        guard isShown, width > 0 else { return }
        Self.line("\r" + String(repeating: " ", count: width) + "\r")
        width = 0
    }

    static func line(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
