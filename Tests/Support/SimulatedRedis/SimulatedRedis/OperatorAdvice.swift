/// The commands that a text for operators names, word by word, as `redis-cli` would read them.
package enum OperatorAdvice {
    /// `XDEL KEY ID` and `EVAL 'SCRIPT' COUNT KEY... ARGUMENT...`, in the order of the text.
    ///
    /// - Parameter text: what a log or an error says.
    /// - Returns: each command's words; none when the text names none.
    package static func commands(in text: String) -> [[String]] {
        var commands: [[String]] = []
        var rest = words(of: text)[...]
        while let word = rest.popFirst() {
            switch word {
            case "XDEL" where rest.count >= 2: commands.append([word] + rest.prefix(2))
            // Script, count of keys, two keys, two arguments.
            case "EVAL" where rest.count >= 6: commands.append([word] + rest.prefix(6))
            default: continue
            }
        }
        return commands
    }

    /// Words between spaces, without the sentence's commas; what stands in single quotes is one word.
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
