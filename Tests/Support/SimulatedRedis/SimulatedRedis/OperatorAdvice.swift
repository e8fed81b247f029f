/// The commands within a text for operators, split into words as `redis-cli` does.
package enum OperatorAdvice {
    /// Returns the commands `XDEL KEY ID` and `EVAL 'SCRIPT' COUNT KEY...
    ///
    /// ARGUMENT...`, in the order of the text.
    ///
    /// - Parameter text: a log line or an error message.
    /// - Returns: each command's words; empty if the text contains no command.
    package static func commands(in text: String) -> [[String]] {
        var commands: [[String]] = []
        var rest = words(of: text)[...]
        while let word = rest.popFirst() {
            switch word {
            case "XDEL" where rest.count >= 2: commands.append([word] + rest.prefix(2))
            // The script, the number of keys, two keys and two arguments.
            case "EVAL" where rest.count >= 6: commands.append([word] + rest.prefix(6))
            default: continue
            }
        }
        return commands
    }

    /// Splits at spaces and removes the sentence's commas; text in single quotes is one word.
    private static func words(of text: String) -> [String] {
        var words: [String] = []
        for (place, part) in text.split(separator: "'", omittingEmptySubsequences: false).enumerated() {
            guard place % 2 == 0 else {
                words.append(String(part))
                continue
            }
            words += part.split { $0 == " " || $0 == "," }.map(String.init)
        }
        return words
    }
}
