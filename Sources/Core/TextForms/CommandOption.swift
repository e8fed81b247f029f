/// An option of a command; the parser and the help text both use it, so they cannot diverge.
package struct CommandOption: Sendable {
    /// The name without dashes.
    package let name: String
    /// The name of the value in the help text, or `nil` for a flag.
    package let placeholder: String?
    package let help: String
    /// The letter of the short form, such as `-h`.
    package let letter: Character?

    package static func flag(_ name: String, _ help: String, letter: Character? = nil) -> Self {
        Self(name: name, placeholder: nil, help: help, letter: letter)
    }

    package static func value(
        _ name: String, _ placeholder: String, _ help: String, letter: Character? = nil
    ) -> Self {
        Self(name: name, placeholder: placeholder, help: help, letter: letter)
    }

    package static let help = flag("help", "Show this text.", letter: "h")

    package func adding(_ words: String) -> Self {
        Self(name: name, placeholder: placeholder, help: help + words, letter: letter)
    }

    package var lines: [String] { HelpText.entry("--\(name)\(placeholder.map { " \($0)" } ?? "")", help) }

    fileprivate func isMeant(by word: String) -> Bool {
        word == "--\(name)" || letter.map { word == "-\($0)" } == true
    }
}

/// The arguments of a command, checked against its options.
package struct ParsedArguments: Sendable {
    /// The command as typed, such as `longwire push`, for messages.
    private let command: String
    package private(set) var wantsHelp = false
    package private(set) var operands: [String] = []
    private var values: [String: [String]] = [:]

    /// Parses words up to the end or `--help`.
    ///
    /// - Parameters:
    ///   - words: the arguments after the command.
    ///   - command: the command as typed, for messages.
    ///   - options: the allowed options besides `--help`.
    /// - Throws: a usage failure that names the invalid word.
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

    /// Returns a usage failure that also names the command's `--help`.
    package func usage(_ message: String) -> CommandFailure { Self.usage(message, command) }

    /// Throws unless the number of operands matches the names.
    package func expectOperands(_ names: [String]) throws(CommandFailure) {
        if operands.count < names.count { throw usage("\(names[operands.count]) is missing") }
        if operands.count > names.count { throw usage("\(operands[names.count]) is one word too many") }
    }

    /// Throws if an option other than `repeatable` is given twice.
    package func refuseRepeats(but repeatable: String = "") throws(CommandFailure) {
        let twice = values.filter { $0.value.count > 1 && $0.key != repeatable }.keys.min()
        if let twice { throw usage("--\(twice) is given twice") }
    }

    package var names: [String] { values.keys.sorted() }

    package func has(_ name: String) -> Bool { values[name] != nil }

    /// Returns the option's last value: a later occurrence overrides an earlier one.
    package func text(_ name: String) -> String? { values[name]?.last }

    package func all(_ name: String) -> [String] { values[name] ?? [] }

    package func required(_ name: String, _ meaning: String) throws(CommandFailure) -> String {
        guard let text = text(name) else { throw .usage("--\(name) is missing: \(meaning)") }
        return text
    }

    /// Returns an integer within `range`, or `nil` if the option is absent; digits may be grouped (20,000 or 20_000).
    package func number(_ name: String, in range: ClosedRange<Int64>) throws(CommandFailure) -> Int64? {
        try parse(name, "a number from \(range.lowerBound) to \(range.upperBound)") {
            Int64($0.filter { $0 != "_" && $0 != "," }).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// Returns a number within `range`, or `nil` if the option is absent.
    package func decimal(_ name: String, in range: ClosedRange<Double>) throws(CommandFailure) -> Double? {
        try parse(name, "a number from \(range.lowerBound) to \(range.upperBound)") {
            Double($0.filter { $0 != "_" && $0 != "," }).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// Returns the value of one of the given words, or `nil` if the option is absent.
    package func choice<Value>(_ name: String, _ choices: [(String, Value)]) throws(CommandFailure) -> Value? {
        try parse(name, "one of: \(choices.map(\.0).joined(separator: ", "))") { text in
            choices.first { $0.0 == text }?.1
        }
    }

    /// Returns the value that `read` parses, or `nil` if the option is absent.
    package func parse<Value>(
        _ name: String, _ form: String, _ read: (String) -> Value?
    ) throws(CommandFailure) -> Value? {
        guard let text = text(name) else { return nil }
        guard let value = read(text) else { throw .usage("--\(name) is \(text); it must be \(form)") }
        return value
    }
}

package enum HelpText {
    private static let width = 96

    /// Returns the lines of a name with its description in a second column.
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
