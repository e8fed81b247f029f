/// One word of a command line.
package enum ArgumentWord: Equatable, Sendable {
    /// The name with its dashes, without a value behind `=`.
    case option(String)
    case operand(String)
}

/// What is wrong with the option that was read last.
package enum ArgumentFault: Error, Equatable, Sendable, CustomStringConvertible {
    case needsValue(option: String)
    case takesNoValue(option: String)
    /// The value has another form than the option's.
    case badValue(option: String, value: String)

    package var description: String {
        switch self {
        case .needsValue(let option): "\(option) needs a value"
        case .takesNoValue(let option): "\(option) takes no value"
        case .badValue(let option, let value): "\(option) cannot be \(value.debugDescription)"
        }
    }
}

/// Reads the words of a command line, one after another, for a program that says what each option means.
///
/// An option is `--name`, with its value behind `=` or as the next word, or one dash and what follows. All else is an
/// operand, `-` and an empty word too. A value may begin with dashes.
///
///     while let word = try reader.next() {
///         switch word {
///         case .option("--check"): isCheck = true
///         case .option("--config"): file = try reader.value()
///         case .option(let name): throw …
///         case .operand(let text): …
///         }
///     }
package struct ArgumentReader<Failure: Error> {
    private var rest: ArraySlice<String>
    private var option = ""
    /// What stands behind the option's `=`, until it is taken.
    private var attached: String?
    private let failure: (ArgumentFault) -> Failure

    /// - Parameters:
    ///   - words: without the program's own name.
    ///   - failure: the program's own error for a fault.
    package init(_ words: some Sequence<String>, failure: @escaping (ArgumentFault) -> Failure) {
        (rest, self.failure) = (Array(words)[...], failure)
    }

    /// The next word; `nil` at the end.
    ///
    /// - Throws: when a value stands behind the `=` of the option before, and the program did not take it.
    package mutating func next() throws(Failure) -> ArgumentWord? {
        try endOption()
        guard let word = rest.popFirst() else { return nil }
        guard word.hasPrefix("-"), word != "-" else { return .operand(word) }
        option = word
        if word.hasPrefix("--"), let equals = word.firstIndex(of: "=") {
            (option, attached) = (String(word[..<equals]), String(word[word.index(after: equals)...]))
        }
        return .option(option)
    }

    /// The value of the option that `next` gave: behind its `=`, or the next word, whatever that is.
    package mutating func value() throws(Failure) -> String {
        defer { attached = nil }
        guard let value = attached ?? rest.popFirst() else { throw failure(.needsValue(option: option)) }
        return value
    }

    /// The value of the option that `next` gave, as a number or another form that a text can have.
    package mutating func value<Form: LosslessStringConvertible>(as form: Form.Type) throws(Failure) -> Form {
        let text = try value()
        guard let value = Form(text) else { throw failure(.badValue(option: option, value: text)) }
        return value
    }

    /// Refuses a value of the option that `next` gave; for a program that stops reading there.
    package func endOption() throws(Failure) {
        guard attached == nil else { throw failure(.takesNoValue(option: option)) }
    }
}
