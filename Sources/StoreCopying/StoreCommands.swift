package import CommandLineTool

/// `longwire store …`: what is done to a store while no gateway works on it.
package enum StoreCommands {
    package static let all: [CommandSyntax] = [copy, redisCheck]

    static let copy = CommandSyntax(
        name: "store copy", summary: "Copies a stopped gateway's store into an empty one, and compares them.",
        operands: [
            ("FROM", "The store to copy: a folder, as the gateway's store.path names it. It is not changed."),
            ("TO", "Where to: a folder that is empty or not there."),
        ],
        notes: [
            "Prints rows, bytes and a digest for each table, then reads both stores again and compares them. Exit code 1 when a "
                + "store is in use, the target is not empty, or the copy is not the same."
        ]
    ) { arguments, context in
        do {
            let source = try open(arguments.operands[0], mustExist: true)
            defer { source.close() }
            guard arguments.operands[0] != arguments.operands[1] else {
                throw CommandFailure.usage("FROM and TO are the same store")
            }
            let sums = try StoreCopy.run(
                from: source, to: { try open(arguments.operands[1], mustExist: false) }, tell: context.write)
            let (rows, bytes) = sums.values.reduce((0, 0)) { ($0.0 + $1.rowCount, $0.1 + $1.byteCount) }
            context.write("copied \(rows) rows, \(bytes) bytes; the stores are the same")
            return .done
        } catch let failure as CommandFailure {
            throw failure
        } catch {
            throw CommandFailure.refused("\(error)")
        }
    }

    private static func open(_ name: String, mustExist: Bool) throws -> any CopyPlace {
        try EmbeddedPlace(name, mustExist: mustExist)
    }
}
