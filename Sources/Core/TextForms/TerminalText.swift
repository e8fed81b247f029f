/// Escapes text, which a peer may have chosen, so that it neither controls a terminal nor starts a line.
package enum TerminalText {
    /// The control sequences that the programs themselves write: colors, cursor home and clear screen.
    package enum Sequence: String, CaseIterable, Sendable {
        case good = "[32m", bad = "[31m", waiting = "[33m", faint = "[2m", strong = "[1m", plain = "[0m", home = "[H"
        case clear = "[J"

        package var text: String { "\u{1B}" + rawValue }
    }

    /// Returns part of a line with each control character and direction mark as `\u` and four digits.
    package static func plain(_ text: String) -> String {
        escaped(text) { _ in 0 }
    }

    /// Returns complete output; line ends, tabs and the sequences of `Sequence` are not escaped.
    package static func lines(_ text: String) -> String {
        escaped(text) { rest in
            switch rest.first {
            case "\n", "\t": return 1
            case "\u{1B}":
                let behind = rest.dropFirst()
                let own = Sequence.allCases.first { behind.starts(with: $0.rawValue.unicodeScalars) }
                return own.map { 1 + $0.rawValue.unicodeScalars.count } ?? 0
            default: return 0
            }
        }
    }

    /// Returns complete output of a program without colors; line ends and tabs are not escaped.
    package static func unpainted(_ text: String) -> String {
        escaped(text) { rest in rest.first == "\n" || rest.first == "\t" ? 1 : 0 }
    }

    /// `allowed` returns the number of scalars to leave unescaped from this control character on.
    private static func escaped(_ text: String, allowed: (Substring.UnicodeScalarView) -> Int) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        var result = ""
        var rest = text.unicodeScalars[...]
        while let scalar = rest.first {
            guard isControl(scalar) else {
                result.unicodeScalars.append(scalar)
                rest.removeFirst()
                continue
            }
            let count = allowed(Substring(rest).unicodeScalars)
            if count > 0 {
                result.unicodeScalars.append(contentsOf: rest.prefix(count))
                rest.removeFirst(count)
            } else {
                let digits = String(scalar.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                rest.removeFirst()
            }
        }
        return result
    }

    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F..<0xA0, 0x61C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}
