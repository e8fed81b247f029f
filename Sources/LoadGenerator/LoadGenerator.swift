// The operators' load generator behind `longwire bench`: loads a running gateway and reports what it did.

internal import Glibc

public enum LoadGenerator {
    /// Runs one benchmark, bounded in time, and prints its report.
    ///
    /// The report goes to standard output, progress and errors to standard error. Raises the process's soft limit of
    /// open files to the hard one. Blocks the calling thread until the run is over.
    ///
    /// - Parameter arguments: what stands behind `longwire bench`; `--help` explains all of it.
    /// - Returns: the exit code: 0 done, 1 a `--require` condition does not hold, 64 usage, 69 the gateway could not be
    ///   reached or refused the generator, 70 a failure of the generator itself.
    public static func run(arguments: [String]) -> Int32 {
        do {
            let options = try BenchOptions(parsing: arguments)
            if options.wantsHelp {
                print(Help.text, terminator: "")
                return ExitCode.done
            }
            let report = try Run(options).perform()
            print(
                options.isJSON
                    ? report.json(mode: options.mode, options.requirements) : report.table(options.requirements),
                terminator: "")
            _ = fflush(nil)
            return report.failed(options.requirements).isEmpty ? ExitCode.done : ExitCode.requirementFailed
        } catch let error as UsageError {
            complain(error.description)
            return ExitCode.usage
        } catch let error as UnavailableError {
            complain(error.description)
            return ExitCode.unavailable
        } catch {
            complain("\(error)")
            return ExitCode.internalError
        }
    }

    private static func complain(_ text: String) {
        Progress.line("longwire bench: \(text)\n")
    }
}
