internal import Foundation
internal import TextForms

/// The output format of a command: text on a terminal, JSON for a program.
struct Display {
    static let options: [CommandOption] = [
        .flag("json", "Print JSON. The default where standard output is no terminal."),
        .flag("text", "Print words and tables. The default on a terminal."),
    ]

    /// Moves the cursor home and clears the screen below, without flicker.
    static let clearScreen = TerminalText.Sequence.home.text + TerminalText.Sequence.clear.text

    let isJSON: Bool
    private let hasColours: Bool

    init(_ arguments: ParsedArguments, _ context: CommandContext) {
        isJSON = arguments.has("json") || !arguments.has("text") && !context.isTerminal
        let environment = context.environment
        // https://no-color.org: any non-empty value disables colors.
        hasColours = context.isTerminal && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }

    /// Prints an answer: its JSON, or the lines that `words` returns.
    func show(_ answer: GatewayHTTP.Answer, on context: CommandContext, words: (Fields) -> [String]) -> ExitCode {
        for line in isJSON ? [answer.text] : words(Fields(answer.object)) { context.write(line) }
        return .done
    }

    func paint(_ text: String, _ colour: TerminalText.Sequence) -> String {
        hasColours ? colour.text + text + TerminalText.Sequence.plain.text : text
    }

    func table(_ rows: [[String]]) -> [String] {
        guard let heading = rows.first else { return [] }
        let widths = heading.indices.map { column in
            rows.map { column < $0.count ? Self.width($0[column]) : 0 }.max() ?? 0
        }
        return rows.enumerated().map { index, row in
            var cells = row.enumerated().map { column, cell in
                column == row.count - 1
                    ? cell : cell + String(repeating: " ", count: max(0, widths[column] - Self.width(cell)))
            }
            if index == 0 { cells = cells.map { paint($0, .faint) } }
            return cells.joined(separator: "  ")
        }
    }

    /// Returns the number of terminal columns; East Asian characters take two.
    private static func width(_ text: String) -> Int {
        text.unicodeScalars.reduce(0) { sum, scalar in
            let isWide = 0x1100...0x115F ~= scalar.value || 0x2E80...0xFF60 ~= scalar.value || scalar.value >= 0x1F300
            return sum + (isWide ? 2 : 1)
        }
    }

    /// Returns a time of the gateway as local time, to the millisecond.
    static func time(_ milliseconds: Int64, isWithDay: Bool = true) -> String {
        var seconds = time_t(milliseconds / 1_000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        let clock = String(
            format: "%02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec, Int(milliseconds % 1_000))
        guard isWithDay else { return clock }
        return String(format: "%04d-%02d-%02d ", parts.tm_year + 1_900, parts.tm_mon + 1, parts.tm_mday) + clock
    }

    static func duration(_ milliseconds: Int64) -> String {
        switch abs(milliseconds) {
        case ..<1_000: "\(milliseconds) ms"
        case ..<120_000: String(format: "%.1f s", Double(milliseconds) / 1_000)
        case ..<7_200_000: "\(milliseconds / 60_000) min"
        case ..<172_800_000: "\(milliseconds / 3_600_000) h"
        default: "\(milliseconds / 86_400_000) d"
        }
    }
}

/// A JSON object of the gateway.
///
/// Control characters in its texts are escaped, so that the texts can be printed.
struct Fields {
    private let object: [String: Any]
    init(_ object: [String: Any]) { self.object = object }
    func text(_ key: String) -> String? { (object[key] as? String).map(TerminalText.plain) }
    func number(_ key: String) -> Int64? {
        (object[key] as? Int).map { Int64($0) } ?? (object[key] as? NSNumber)?.int64Value
    }
    func flag(_ key: String) -> Bool { object[key] as? Bool ?? (object[key] as? NSNumber)?.boolValue ?? false }
    func list(_ key: String) -> [Fields] { (object[key] as? [[String: Any]] ?? []).map { Fields($0) } }
    func texts(_ key: String) -> [String] { (object[key] as? [String] ?? []).map(TerminalText.plain) }
    func fields(_ key: String) -> Fields { Fields(object[key] as? [String: Any] ?? [:]) }
    var keys: [String] { object.keys.sorted().map(TerminalText.plain) }
}
