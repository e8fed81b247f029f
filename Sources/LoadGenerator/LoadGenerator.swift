// The operators' load generator behind `longwire bench`: loads a running gateway and reports what it did.

internal import Glibc
internal import Platform
internal import TextForms

package enum LoadGenerator {
    /// Runs one benchmark, bounded in time, and prints its report.
    ///
    /// The report goes to standard output, progress and errors to standard error. Raises the process's soft limit of
    /// open files to the hard one. Blocks the calling thread until the run is over.
    ///
    /// - Parameters:
    ///   - arguments: what stands behind `longwire bench`; `--help` explains all of it.
    ///   - version: of this program, for the report.
    /// - Returns: the exit code: 0 done, 1 a `--require` condition does not hold, 64 usage, 69 the gateway could not be
    ///   reached or refused the generator, 70 a failure of the generator itself, 74 standard output cannot be written.
    package static func run(arguments: [String], version: String = "unknown") -> Int32 {
        do {
            let options = try BenchOptions(parsing: arguments)
            if options.wantsHelp {
                try tell(Help.text)
                return ExitCode.done
            }
            try prepare(options)
            let startedAt = Int64(Clocks.wallMilliseconds())
            let run = try Run(options)
            // Before the load: a gateway that is busy answers late.
            let gatewayVersion = GatewayVersion.find(run.credentials)
            var report: Report
            do {
                report = try run.perform()
            } catch let error as UnavailableError {
                complain(error.description)
                if let hint = RunHint.text(error.description, run.credentials) { complain(hint) }
                return ExitCode.unavailable
            }
            report.notes += Set(report.failures.keys.compactMap { RunHint.text($0, run.credentials) }).sorted()
            report.header = RunHeader(
                startedAt: startedAt, host: .present(), version: version, gatewayVersion: gatewayVersion,
                command: ["bench"] + RunHeader.hidingSecrets(arguments),
                secureListeners: run.credentials.secureListeners)
            report.headlineNames = options.mode.headlineNames
            try publish(report, options)
            return report.failed(options.requirements).isEmpty ? ExitCode.done : ExitCode.requirementFailed
        } catch let error as UsageError {
            complain(error.description)
            return ExitCode.usage
        } catch let error as UnwritableError where error.reason.isBrokenPipe {
            return ExitCode.readerLeft
        } catch let error as UnwritableError {
            complain("standard output cannot be written: \(error.reason)")
            return ExitCode.unwritable
        } catch let error as UnavailableError {
            complain(error.description)
            return ExitCode.unavailable
        } catch {
            complain("\(error)")
            return ExitCode.internalError
        }
    }

    /// A file that could not be written at the end is refused at the start: a run of minutes must not end in nothing.
    private static func prepare(_ options: BenchOptions) throws(UsageError) {
        guard let path = options.jsonFile, path != "-" else { return }
        let folder = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        guard access(folder, W_OK) == 0 else {
            throw UsageError("--json \(path): its folder cannot be written: \(errorText(errno))")
        }
    }

    private static func publish(_ report: Report, _ options: BenchOptions) throws {
        let json = options.jsonFile.map { ($0, report.json(mode: options.mode, options.requirements)) }
        if let (path, text) = json, path != "-" { try TextFile.replace(path, with: Array(text.utf8)) }
        if options.isJSONPrinted, let json {
            try tell(json.1)
        } else {
            try tell(report.table(options.requirements))
        }
        for line in report.verdicts(report.failed(options.requirements)) { complain(line) }
    }

    private struct UnwritableError: Error {
        var reason: SystemError
    }

    private static func tell(_ text: String) throws(UnwritableError) {
        if case .failed(let error) = BoundedWriter.write(TerminalText.lines(text), to: STDOUT_FILENO) {
            throw UnwritableError(reason: error)
        }
    }

    private static func complain(_ text: String) {
        Progress.line("longwire bench: \(TerminalText.lines(text))\n")
    }
}
