import Configuration
internal import Gateway
internal import TextForms

/// Parses a configuration file twice: both results are equal, and each error names a place in the file.
///
/// Input: the file. Its folder does not exist, so all referenced files are missing.
enum ConfigurationFuzz {
    private static let file = "/nonexistent/longwire.json5"

    static func run(_ input: [UInt8]) throws {
        let first = read(input)
        try require(first.text == read(input).text, "the same file, another verdict")
        switch first {
        case .refused(let error):
            try require(!error.problems.isEmpty, "refused without a reason")
            let lineCount = 1 + input.count
            for problem in error.problems {
                try require(!problem.text.isEmpty, "a problem without a text")
                guard let position = problem.position else { continue }
                try require((1...lineCount).contains(position.line), "line \(position.line)")
                try require((1...input.count + 1).contains(position.column), "column \(position.column)")
            }
        case .taken(let configuration):
            try require((1...256).contains(configuration.loopCount), "\(configuration.loopCount) loops")
            let names = configuration.apps.map(\.appID)
            try require(Set(names).count == names.count, "an app stands twice")
            try require(configuration.usesDemoApp || !names.isEmpty, "no app at all")
            try require(configuration.limits.brokenRelations().isEmpty, "limits that contradict each other")
            for (_, path) in GatewayConfiguration.listeners {
                for address in configuration[keyPath: path].addresses { try check(address) }
            }
        }
        try words(input)
    }

    private enum Verdict {
        case taken(GatewayConfiguration)
        case refused(ConfigurationError)
        var text: String {
            switch self {
            case .taken(let configuration): configuration.warnings.joined(separator: "\n")
            case .refused(let error): error.description
            }
        }
    }

    private static func read(_ input: [UInt8]) -> Verdict {
        do throws(ConfigurationError) {
            return .taken(try ConfigurationFile.read(input, file: file, isReadableByOthers: true))
        } catch {
            return .refused(error)
        }
    }

    /// Runs the parsers of single values and of the command line.
    private static func words(_ input: [UInt8]) throws {
        let text = String(decoding: input.prefix(256), as: UTF8.self)
        if let address = ListenAddress(text) { try check(address) }
        if let url = try? HookURL(text) { try require(!url.description.isEmpty, "a hook without a text") }
        do throws(CommandFailure) {
            _ = try LongwiredArguments(text.split(separator: "\n").map(String.init))
        } catch {
            try require(!error.description.isEmpty, "refused without a reason")
        }
    }

    private static func check(_ address: ListenAddress) throws {
        try require(ListenAddress(address.description) == address, "\(address) is not read as written")
        try require(address.host.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "an address with strange characters")
    }
}
