internal import TextForms

struct CommandSyntax: Sendable {
    let name: String
    let summary: String
    /// The names of the positional arguments, all required.
    let operands: [(name: String, help: String)]
    let options: [CommandOption]
    /// The paragraphs after the options in the help text.
    let notes: [String]
    let run: @Sendable (ParsedArguments, CommandContext) throws -> ExitCode

    init(
        name: String, summary: String, operands: [(name: String, help: String)] = [], options: [CommandOption] = [],
        notes: [String] = [], run: @escaping @Sendable (ParsedArguments, CommandContext) throws -> ExitCode
    ) {
        (self.name, self.summary, self.operands, self.options) = (name, summary, operands, options)
        (self.notes, self.run) = (notes, run)
    }

    func parse(_ words: [String]) throws(CommandFailure) -> ParsedArguments {
        let parsed = try ParsedArguments(words, of: "longwire \(name)", options)
        if !parsed.wantsHelp { try parsed.expectOperands(operands.map(\.name)) }
        return parsed
    }

    var help: String {
        let words = operands.map { " " + $0.name }.joined()
        var lines = [summary, "", "Usage: longwire \(name)\(words) [options]"]
        if !operands.isEmpty {
            lines += ["", "Arguments:"] + operands.flatMap { HelpText.entry($0.name, $0.help) }
        }
        lines += ["", "Options:"] + (options + [.help]).flatMap(\.lines)
        for note in notes { lines += [""] + HelpText.wrap(note) }
        return lines.joined(separator: "\n")
    }
}

extension ParsedArguments {
    /// Returns a time within `range`, in milliseconds, or `nil` when the option is absent.
    func duration(_ name: String, in range: ClosedRange<Int64>) throws(CommandFailure) -> Int64? {
        let form =
            "a time such as 90s, 2h or 3d, or milliseconds from \(range.lowerBound) to \(range.upperBound)"
        return try parse(name, form) { text in
            Durations.milliseconds(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }
}
