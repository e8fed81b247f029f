package enum ArgumentWord: Equatable, Sendable {
    /// The name with its dashes, without a value after `=`.
    case option(String)
    case operand(String)
}

package enum ArgumentFault: Error, Equatable, Sendable, CustomStringConvertible {
    case needsValue(option: String)
    case takesNoValue(option: String)
    /// The value cannot be converted to the option's type.
    case badValue(option: String, value: String)

    package var description: String {
        switch self {
        case .needsValue(let option): "\(option) needs a value"
        case .takesNoValue(let option): "\(option) takes no value"
        case .badValue(let option, let value): "\(option) cannot be \(value.debugDescription)"
        }
    }
}

/// Reads the words of a command line one after another.
///
/// The program decides the meaning of each option. An option is `--name` with its value after `=` or in the next word, or one
/// dash and any text. Every other word is an operand, including `-` and an empty word. A value may begin with dashes.
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
    /// The value after the option's `=`, until it is taken.
    private var attached: String?
    private let failure: (ArgumentFault) -> Failure

    /// - Parameters:
    ///   - words: the arguments without the program's name.
    ///   - failure: converts a fault to the program's own error.
    package init(_ words: some Sequence<String>, failure: @escaping (ArgumentFault) -> Failure) {
        (rest, self.failure) = (Array(words)[...], failure)
    }

    /// Returns the next word, or `nil` at the end.
    ///
    /// - Throws: when the previous option has a value after `=` that the program did not take.
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

    /// Returns the value of the current option: the text after `=`, or else the next word, whatever its form.
    package mutating func value() throws(Failure) -> String {
        defer { attached = nil }
        guard let value = attached ?? rest.popFirst() else { throw failure(.needsValue(option: option)) }
        return value
    }

    /// Returns the value of the current option, converted to `form`.
    package mutating func value<Form: LosslessStringConvertible>(as form: Form.Type) throws(Failure) -> Form {
        let text = try value()
        guard let value = Form(text) else { throw failure(.badValue(option: option, value: text)) }
        return value
    }

    /// Throws if the current option has a value that was not taken; called by a program that stops before the last word.
    package func endOption() throws(Failure) {
        guard attached == nil else { throw failure(.takesNoValue(option: option)) }
    }
}
