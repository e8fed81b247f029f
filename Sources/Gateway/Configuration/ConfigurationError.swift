/// A problem in the configuration: the key, its value and the allowed values.
package struct ConfigurationProblem: Equatable, Sendable, CustomStringConvertible {
    /// The dotted and indexed path, such as `apps[1].appSecret`; empty for the whole file.
    package var path: String
    /// The position in the file; `nil` if the problem has none.
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

/// An unusable configuration, with all its problems; the process exits with code 78.
package struct ConfigurationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The file's name; `nil` without a file, for example if the default data folder cannot be created.
    package var file: String?
    package var problems: [ConfigurationProblem]

    package init(file: String?, problems: [ConfigurationProblem]) { (self.file, self.problems) = (file, problems) }

    /// One line per problem, in the compilers' format: `FILE:LINE:COLUMN: key: what`.
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
