/// One thing wrong with the configuration: which key, what stands there, what is allowed.
package struct ConfigurationProblem: Equatable, Sendable, CustomStringConvertible {
    /// Dotted and indexed: `apps[1].appSecret`; empty for the file as a whole.
    package var path: String
    /// `nil`: the problem has no place in the file.
    package var position: TextPosition?
    package var text: String

    package init(path: String, position: TextPosition?, text: String) {
        (self.path, self.position, self.text) = (path, position, text)
    }

    package var description: String {
        let place = position.map { "\($0.line):\($0.column): " } ?? ""
        return place + (path.isEmpty ? text : "\(path): \(text)")
    }
}

/// A configuration that cannot be used, with everything that is wrong with it.
///
/// Exit code 78.
package struct ConfigurationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// `nil`: the embedded defaults (a data folder that cannot be made, say).
    package var file: String?
    package var problems: [ConfigurationProblem]

    package init(file: String?, problems: [ConfigurationProblem]) { (self.file, self.problems) = (file, problems) }

    /// One line a problem, in the form that editors and people know: `FILE:LINE:COLUMN: key: what`.
    package var description: String {
        let name = file ?? "configuration"
        var lines = problems.prefix(ConfigurationLimits.reportedProblemCount).map { problem in
            problem.position == nil ? "\(name): \(problem)" : "\(name):\(problem)"
        }
        let left = problems.count - lines.count
        if left > 0 { lines.append("\(name): and \(left) more") }
        return lines.joined(separator: "\n")
    }
}
