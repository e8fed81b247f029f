// The load generator behind `longwire bench`.

internal import Glibc
internal import Platform
package import TextForms

package enum LoadGenerator {
    /// Runs one benchmark, limited in time, and prints its report.
    ///
    /// The report goes to standard output, progress and errors to standard error. Raises the process's soft limit of open files
    /// to the hard one. Blocks the calling thread until the run is over.
    ///
    /// - Parameters:
    ///   - arguments: the arguments after `longwire bench`; `--help` explains them.
    ///   - version: the version of this program, for the report.
    /// - Returns: the exit code. Errors have been printed.
    package static func run(arguments: [String], version: String = "unknown") -> ExitCode {
        do {
            let options = try BenchOptions(parsing: arguments)
            if options.wantsHelp { return tell(Help.text) }
            try prepare(options)
            let startedAt = Int64(Clocks.wallMilliseconds())
            let run = try Run(options)
            // Read before the load, because a loaded gateway answers late.
            let gatewayVersion = GatewayVersion.find(run.credentials)
            var report: Report
            do {
                report = try run.perform()
            } catch let failure as CommandFailure where failure.code == .unreachable {
                let hint = RunHint.text(failure.message, run.credentials).map { "\nlongwire bench: \($0)" } ?? ""
                throw CommandFailure.unreachable(failure.message + hint)
            }
            report.notes += Set(report.failures.keys.compactMap { RunHint.text($0, run.credentials) }).sorted()
            report.header = RunHeader(
                startedAt: startedAt, host: .present(), version: version, gatewayVersion: gatewayVersion,
                command: ["bench"] + RunHeader.hidingSecrets(arguments),
                secureListeners: run.credentials.secureListeners)
            report.headlineNames = options.mode.headlineNames
            let code = try publish(report, options)
            guard code == .done else { return code }
            return report.failed(options.requirements).isEmpty ? .done : .refused
        } catch let failure as CommandFailure {
            complain(failure.message)
            return failure.code
        } catch {
            complain("\(error)")
            return .internal
        }
    }

    /// Checks at the start that the report file can be written, so that its content is not lost after a long run.
    private static func prepare(_ options: BenchOptions) throws(CommandFailure) {
        guard let path = options.jsonFile, path != "-" else { return }
        let folder = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        guard access(folder, W_OK) == 0 else {
            throw CommandFailure.usage("--json \(path): its folder cannot be written: \(errorText(errno))")
        }
    }

    private static func publish(_ report: Report, _ options: BenchOptions) throws(CommandFailure) -> ExitCode {
        let json = options.jsonFile.map { _ in report.json(mode: options.mode, options.requirements) }
        if let json, let path = options.jsonFile, path != "-" { try TextFile.replace(path, with: Array(json.utf8)) }
        let code = tell(options.isJSONPrinted ? json ?? "" : report.table(options.requirements))
        for line in report.verdicts(report.failed(options.requirements)) { complain(line) }
        return code
    }

    private static func tell(_ text: String) -> ExitCode {
        switch BoundedWriter.write(TerminalText.lines(text), to: STDOUT_FILENO) {
        case .failed(let error) where error.isBrokenPipe: return .readerLeft
        case .failed(let error):
            complain("standard output cannot be written: \(error)")
            return .failedOutput
        case .done, .timedOut: return .done
        }
    }

    private static func complain(_ text: String) {
        Progress.line("longwire bench: \(TerminalText.lines(text))\n")
    }
}
