internal import TextForms

/// What one subcommand accepts; its help text is made from the same description, so the two cannot drift apart.
package struct CommandSyntax: Sendable {
    package struct Option: Sendable {
        let name: String
        /// `nil`: a flag without a value.
        let placeholder: String?
        let help: String

        package static func flag(_ name: String, _ help: String) -> Option {
            Option(name: name, placeholder: nil, help: help)
        }
        package static func value(_ name: String, _ placeholder: String, _ help: String) -> Option {
            Option(name: name, placeholder: placeholder, help: help)
        }
    }

    let name: String
    let summary: String
    /// Names of the words that are no options, all required.
    var operands: [(name: String, help: String)] = []
    var options: [Option] = []
    /// Paragraphs behind the options.
    var notes: [String] = []
    let run: @Sendable (ParsedArguments, CommandContext) throws -> ExitCode

    package init(
        name: String, summary: String, operands: [(name: String, help: String)] = [], options: [Option] = [],
        notes: [String] = [], run: @escaping @Sendable (ParsedArguments, CommandContext) throws -> ExitCode
    ) {
        (self.name, self.summary, self.operands, self.options) = (name, summary, operands, options)
        (self.notes, self.run) = (notes, run)
    }

    private static let helpOption = Option.flag("help", "Show this text.")

    func parse(_ words: [String]) throws(CommandFailure) -> ParsedArguments {
        var parsed = ParsedArguments()
        var reader = ArgumentReader(words) { fault($0) }
        while let word = try reader.next() {
            switch word {
            case .operand(let text): parsed.operands.append(text)
            case .option("--help"), .option("-h"):
                try reader.endOption()
                parsed.wantsHelp = true
                return parsed
            case .option(let text):
                guard let option = option(text) else { throw fault("unknown option \(text)\(suggestion(text))") }
                if option.placeholder == nil {
                    parsed.flags.insert(option.name)
                } else {
                    parsed.values[option.name, default: []].append(try reader.value())
                }
            }
        }
        guard parsed.operands.count >= operands.count else {
            throw fault("\(operands[parsed.operands.count].name) is missing")
        }
        guard parsed.operands.count == operands.count else {
            throw fault("\(parsed.operands[operands.count]) is one word too many")
        }
        return parsed
    }

    /// The option of a name with its dashes.
    private func option(_ text: String) -> Option? {
        guard text.hasPrefix("--") else { return nil }
        return options.first { $0.name == text.dropFirst(2) }
    }

    private func suggestion(_ text: String) -> String {
        let names = (options + [Self.helpOption]).map { "--" + $0.name }
        return Suggestion.hint(for: text, among: names)
    }

    private func fault(_ fault: ArgumentFault) -> CommandFailure {
        guard case .needsValue(let name) = fault, let placeholder = option(name)?.placeholder else {
            return self.fault(fault.description)
        }
        return self.fault("\(fault) (\(placeholder))")
    }

    private func fault(_ message: String) -> CommandFailure {
        .usage("\(message)\nTry: longwire \(name) --help")
    }

    var help: String {
        var lines = [summary, ""]
        let words = operands.map(\.name).joined(separator: " ")
        lines.append("Usage: longwire \(name)\(words.isEmpty ? "" : " ")\(words) [options]")
        if !operands.isEmpty {
            lines += ["", "Arguments:"] + operands.flatMap { Self.entry($0.name, $0.help) }
        }
        lines += ["", "Options:"]
        for option in options + [Self.helpOption] {
            lines += Self.entry("--\(option.name)\(option.placeholder.map { " \($0)" } ?? "")", option.help)
        }
        for note in notes { lines += [""] + Self.wrap(note, width: 96) }
        return lines.joined(separator: "\n")
    }

    private static func entry(_ name: String, _ help: String) -> [String] {
        let column = 28
        let wrapped = wrap(help, width: 96 - column)
        let head = "  " + name
        let isWide = head.count >= column
        let first = isWide ? [] : [pad(head, column) + (wrapped.first ?? "")]
        let rest = isWide ? wrapped : Array(wrapped.dropFirst())
        return (isWide ? [head] : []) + first + rest.map { pad("", column) + $0 }
    }

    static func pad(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    private static func wrap(_ text: String, width: Int) -> [String] {
        var lines: [String] = []
        for word in text.split(separator: " ") {
            if let last = lines.last, last.count + 1 + word.count <= width {
                lines[lines.count - 1] = last + " " + word
            } else {
                lines.append(String(word))
            }
        }
        return lines
    }
}

/// The words of one command line, checked against its syntax.
package struct ParsedArguments {
    var wantsHelp = false
    var flags: Set<String> = []
    var values: [String: [String]] = [:]
    package fileprivate(set) var operands: [String] = []

    package func has(_ flag: String) -> Bool { flags.contains(flag) }

    /// The last one given: a later option overrides an earlier one.
    package func text(_ name: String) -> String? { values[name]?.last }

    func all(_ name: String) -> [String] { values[name] ?? [] }

    package func required(_ name: String, _ meaning: String) throws(CommandFailure) -> String {
        guard let text = text(name) else { throw .usage("--\(name) is missing: \(meaning)") }
        return text
    }

    /// A whole number within `range`; `nil` when the option is absent.
    package func number(_ name: String, in range: ClosedRange<Int64>) throws(CommandFailure) -> Int64? {
        guard let text = text(name) else { return nil }
        guard let number = Int64(text), range.contains(number) else {
            throw .usage("--\(name) is \(text); it must be a number from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }

    /// A time within `range`, in milliseconds; `nil` when the option is absent.
    func duration(_ name: String, in range: ClosedRange<Int64>) throws(CommandFailure) -> Int64? {
        guard let text = text(name) else { return nil }
        guard let time = Durations.milliseconds(text), range.contains(time) else {
            throw .usage(
                "--\(name) is \(text); it must be a time such as 90s, 2h or 3d, or milliseconds from \(range.lowerBound) to "
                    + "\(range.upperBound)")
        }
        return time
    }

    /// One of a few words.
    func choice<Value>(_ name: String, _ choices: [(String, Value)]) throws(CommandFailure) -> Value? {
        guard let text = text(name) else { return nil }
        guard let choice = choices.first(where: { $0.0 == text }) else {
            let names = choices.map(\.0).joined(separator: ", ")
            throw .usage("--\(name) is \(text); it must be one of: \(names)")
        }
        return choice.1
    }
}
