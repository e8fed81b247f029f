/// One option of a command: command lines are checked against it and help texts made of it, so the two cannot drift apart.
package struct CommandOption: Sendable {
    /// Without dashes.
    package let name: String
    /// `nil`: a flag without a value.
    package let placeholder: String?
    package let help: String
    /// Stands for the option behind a single dash.
    package let letter: Character?

    package static func flag(_ name: String, _ help: String, letter: Character? = nil) -> Self {
        Self(name: name, placeholder: nil, help: help, letter: letter)
    }

    package static func value(
        _ name: String, _ placeholder: String, _ help: String, letter: Character? = nil
    ) -> Self {
        Self(name: name, placeholder: placeholder, help: help, letter: letter)
    }

    /// Every command has it.
    package static let help = flag("help", "Show this text.", letter: "h")

    /// The same with more to say.
    package func adding(_ words: String) -> Self {
        Self(name: name, placeholder: placeholder, help: help + words, letter: letter)
    }

    /// Its lines in a help text.
    package var lines: [String] { HelpText.entry("--\(name)\(placeholder.map { " \($0)" } ?? "")", help) }

    fileprivate func isMeant(by word: String) -> Bool {
        word == "--\(name)" || letter.map { word == "-\($0)" } == true
    }
}

/// The words behind a command, checked against its options.
package struct ParsedArguments: Sendable {
    /// How a person calls it, for messages: `longwire push`.
    private let command: String
    package private(set) var wantsHelp = false
    package private(set) var operands: [String] = []
    private var values: [String: [String]] = [:]

    /// Reads words up to their end, or to `--help`.
    ///
    /// - Parameters:
    ///   - words: what stands behind the command.
    ///   - command: its name, for messages.
    ///   - options: what it takes beside `--help`.
    /// - Throws: a usage failure that names the word.
    package init(
        _ words: some Sequence<String>, of command: String, _ options: [CommandOption]
    ) throws(CommandFailure) {
        self.command = command
        let options = options + [.help]
        var reader = ArgumentReader(words) { fault in
            guard case .needsValue(let name) = fault,
                let placeholder = options.first(where: { $0.isMeant(by: name) })?.placeholder
            else { return Self.usage(fault.description, command) }
            return Self.usage("\(fault) (\(placeholder))", command)
        }
        while let word = try reader.next() {
            switch word {
            case .operand(let text): operands.append(text)
            case .option(let text):
                guard let option = options.first(where: { $0.isMeant(by: text) }) else {
                    let near = Suggestion.hint(for: text, among: options.map { "--" + $0.name })
                    throw Self.usage("unknown option \(text)\(near)", command)
                }
                let value = option.placeholder == nil ? "" : try reader.value()
                values[option.name, default: []].append(value)
                guard option.name == CommandOption.help.name else { continue }
                try reader.endOption()
                wantsHelp = true
                return
            }
        }
    }

    private static func usage(_ message: String, _ command: String) -> CommandFailure {
        .usage("\(message)\nTry: \(command) --help")
    }

    /// The fault of the command line, and the command that prints help.
    package func usage(_ message: String) -> CommandFailure { Self.usage(message, command) }

    /// Refuses more or fewer operands than these.
    package func expectOperands(_ names: [String]) throws(CommandFailure) {
        if operands.count < names.count { throw usage("\(names[operands.count]) is missing") }
        if operands.count > names.count { throw usage("\(operands[names.count]) is one word too many") }
    }

    /// Refuses an option that is given twice, but for `repeatable`.
    package func refuseRepeats(but repeatable: String = "") throws(CommandFailure) {
        let twice = values.filter { $0.value.count > 1 && $0.key != repeatable }.keys.min()
        if let twice { throw usage("--\(twice) is given twice") }
    }

    /// The options that are there, in the order of the alphabet.
    package var names: [String] { values.keys.sorted() }

    package func has(_ name: String) -> Bool { values[name] != nil }

    /// The last one given: a later option overrides an earlier one.
    package func text(_ name: String) -> String? { values[name]?.last }

    package func all(_ name: String) -> [String] { values[name] ?? [] }

    package func required(_ name: String, _ meaning: String) throws(CommandFailure) -> String {
        guard let text = text(name) else { throw .usage("--\(name) is missing: \(meaning)") }
        return text
    }

    /// A whole number within `range`, which may have its thousands apart (20,000 or 20_000); `nil` when it is absent.
    package func number(_ name: String, in range: ClosedRange<Int64>) throws(CommandFailure) -> Int64? {
        try parse(name, "a number from \(range.lowerBound) to \(range.upperBound)") {
            Int64($0.filter { $0 != "_" && $0 != "," }).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// A number within `range`; `nil` when it is absent.
    package func decimal(_ name: String, in range: ClosedRange<Double>) throws(CommandFailure) -> Double? {
        try parse(name, "a number from \(range.lowerBound) to \(range.upperBound)") {
            Double($0.filter { $0 != "_" && $0 != "," }).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// One of a few words.
    package func choice<Value>(_ name: String, _ choices: [(String, Value)]) throws(CommandFailure) -> Value? {
        try parse(name, "one of: \(choices.map(\.0).joined(separator: ", "))") { text in
            choices.first { $0.0 == text }?.1
        }
    }

    /// A value that has a form of its own; `nil` when it is absent.
    package func parse<Value>(
        _ name: String, _ form: String, _ read: (String) -> Value?
    ) throws(CommandFailure) -> Value? {
        guard let text = text(name) else { return nil }
        guard let value = read(text) else { throw .usage("--\(name) is \(text); it must be \(form)") }
        return value
    }
}

/// How help texts are laid out.
package enum HelpText {
    private static let width = 96

    /// A name, and behind it in a column of its own what it means.
    package static func entry(_ name: String, _ help: String, column: Int = 28) -> [String] {
        let wrapped = wrap(help, width: width - column)
        let head = "  " + name
        let isWide = head.count >= column
        let first = isWide ? [] : [pad(head, column) + (wrapped.first ?? "")]
        let rest = isWide ? wrapped : Array(wrapped.dropFirst())
        return (isWide ? [head] : []) + first + rest.map { pad("", column) + $0 }
    }

    package static func pad(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.count))
    }

    package static func wrap(_ text: String, width: Int = width) -> [String] {
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
