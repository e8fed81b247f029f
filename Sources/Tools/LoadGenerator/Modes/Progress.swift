internal import Glibc

/// The progress display: one line that is overwritten on a terminal, or a line every five seconds in a pipe or a file.
struct Progress {
    private let isShown: Bool
    private let isTerminal: Bool
    private let now: () -> Int64
    private let put: (String) -> Void
    private var width = 0
    private var phase = ""
    private var startedAt: Int64 = 0
    private var toldAt: Int64 = 0

    /// The interval between lines without a terminal.
    static let lineNanoseconds: Int64 = 5_000_000_000
    /// The time before a remaining time is estimated.
    private static let patienceNanoseconds: Int64 = 1_000_000_000

    init(isQuiet: Bool) {
        self.init(isQuiet: isQuiet, isTerminal: isatty(STDERR_FILENO) == 1, now: Clocks.now) { Self.line($0) }
    }

    init(isQuiet: Bool, isTerminal: Bool, now: @escaping () -> Int64, put: @escaping (String) -> Void) {
        (isShown, self.isTerminal, self.now, self.put) = (!isQuiet, isTerminal, now, put)
        toldAt = now()
    }

    /// Shows `fraction` (0 to 1) of the phase as a bar with the remaining time.
    ///
    /// Without a fraction, it shows only the text. The text before the first comma or colon names the phase.
    mutating func show(_ text: String, fraction: Double? = nil) {
        guard isShown else { return }
        let name = String(text.prefix { $0 != "," && $0 != ":" })
        let time = now()
        if name != phase { (phase, startedAt) = (name, time) }
        if !isTerminal {
            guard time - toldAt >= Self.lineNanoseconds else { return }
            toldAt = time
            let part = fraction.map { ", \(Int(min(1, max(0, $0)) * 100)) %" } ?? ""
            return put("longwire bench: \(text)\(part)\(left(fraction, time))\n")
        }
        var line = text + left(fraction, time)
        if let fraction {
            let filled = Int(min(1, max(0, fraction)) * 24)
            line =
                "[" + String(repeating: "#", count: filled) + String(repeating: ".", count: 24 - filled) + "] " + line
        }
        let padding = String(repeating: " ", count: max(0, width - line.count))
        width = line.count
        put("\r" + line + padding)
    }

    private func left(_ fraction: Double?, _ time: Int64) -> String {
        let elapsed = time - startedAt
        guard let fraction, fraction > 0, fraction < 1, elapsed >= Self.patienceNanoseconds else { return "" }
        let seconds = Double(elapsed) / 1e9 * (1 - fraction) / fraction
        guard seconds < 1e6 else { return "" }
        let whole = Int(seconds.rounded(.up))
        return whole < 120 ? ", \(whole) s left" : ", \((whole + 59) / 60) min left"
    }

    mutating func clear() {
        guard isShown, isTerminal, width > 0 else { return }
        put("\r" + String(repeating: " ", count: width) + "\r")
        width = 0
    }

    static func line(_ text: String) {
        let bytes = Array(text.utf8)
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
