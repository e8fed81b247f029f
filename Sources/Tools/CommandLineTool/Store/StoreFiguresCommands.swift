internal import Delivery
internal import MessageStore
internal import Platform
internal import TextForms

extension StoreCommands {
    private static let folderOperand = (
        "FOLDER", "The data folder, as the gateway's store.path names it. The gateway is stopped."
    )

    static let stats = CommandSyntax(
        name: "store stats", summary: "Counts the rows of a store and its size on the disk.",
        operands: [folderOperand], options: Display.options,
        notes: [
            "Rows and bytes of each table, queued messages of each app (named by its key, 16 hex digits), the oldest of them, the "
                + "log, and the disk with and without preallocated zeros. Changes nothing.",
            "While a gateway works on the folder only the disk is counted: /metrics and longwire top have the rest, and a backup "
                + "can be read at any time.",
        ]
    ) { arguments, context in
        let folder = arguments.operands[0]
        try requireStore(folder)
        let disk = try DiskUsage(folder)
        let display = Display(arguments, context)
        var check: StoreCheck?
        var owner: Int32??
        do {
            let inspection = try StoreInspection(folder: folder)
            defer { inspection.close() }
            check = StoreCheck(inspection)
        } catch let error as StoreError {
            guard case .inUse(_, let process) = error else { throw error }
            owner = .some(process)
        }
        context.write(display.isJSON ? json(disk, check, owner) : words(disk, check, owner, display))
        if let check, check.damageCount > 0 {
            context.complain(
                "longwire: \(check.damageCount) things in \(folder) are damaged and may be missing above; see longwire "
                    + "store check \(folder)")
        }
        return .done
    }

    static let check = CommandSyntax(
        name: "store check", summary: "Reads a whole store and reports damage.",
        operands: [folderOperand], options: Display.options,
        notes: [
            "Checks the log's checksums, each block of the database, each row's form, the index of alarms, and whether "
                + "queues, devices and jobs agree. Prints place, damage, meaning and remedy of each. Changes nothing.",
            "Exit code 1 when something is damaged, or when a gateway works on the folder.",
        ]
    ) { arguments, context in
        let folder = arguments.operands[0]
        try requireStore(folder)
        let inspection: StoreInspection
        do { inspection = try StoreInspection(folder: folder) } catch let error as StoreError {
            guard case .inUse = error else { throw error }
            throw CommandFailure.refused(
                "\(error)\nThe store of a running gateway changes while it is read: check a backup in its place")
        }
        defer { inspection.close() }
        let display = Display(arguments, context)
        let check = StoreCheck(inspection)
        if display.isJSON {
            context.write(json(check, folder))
        } else {
            for damage in check.damages {
                context.write(
                    "\(damage.place): \(damage.what)\n  means: \(damage.kind.meaning)\n  do: \(damage.kind.advice)")
            }
            let left = check.damageCount - check.damages.count
            if left > 0 { context.write("and \(left) more") }
            context.write(summary(check))
        }
        return check.damageCount == 0 ? .done : .refused
    }

    /// Refuses a folder without a store, because opening it would create one.
    static func requireStore(_ folder: String) throws {
        do throws(StoreError) {
            try EmbeddedStore.requireStore(in: folder)
        } catch { throw CommandFailure.refused("\(error)") }
    }

    // MARK: Words

    private static func summary(_ check: StoreCheck) -> String {
        let rowCount = check.tables.values.reduce(0) { $0 + $1.rowCount }
        var lines = ["\(rowCount) rows and \(check.log.recordCount) records of the log were read"]
        if check.log.cutByteCount > 0 {
            lines.append(
                "the log ends in a write of \(check.log.cutByteCount) bytes that never ended"
                    + (check.log.isUnsynced
                        ? "; it was written with durability os, so some of it may have been answered"
                        : "; none of it was answered, and a start removes it"))
        }
        let count = check.damageCount
        lines.append(count == 0 ? "nothing is damaged" : "\(count) \(count == 1 ? "thing is" : "things are") damaged")
        return lines.joined(separator: "\n")
    }

    private static func words(_ disk: DiskUsage, _ check: StoreCheck?, _ owner: Int32??, _ display: Display) -> String {
        var lines: [String] = []
        if let check {
            var rows = [["table", "rows", "bytes"]]
            for table in StoreKey.Table.allCases {
                let figures = check.tables[table] ?? StoreCheck.Table()
                rows.append(["\(table)", "\(figures.rowCount)", "\(figures.byteCount)"])
            }
            lines += display.table(rows) + [""]
            var queues = [["app", "queued messages", "bytes", "oldest"]]
            for (app, queue) in check.queues.sorted(by: { $0.key < $1.key }) {
                queues.append(
                    [
                        StoreCheck.hex(app), "\(queue.messageCount)", "\(queue.byteCount)", Display.time(queue.oldest),
                    ])
            }
            lines += display.table(queues) + [""]
        } else {
            let name = (owner ?? nil).map { "process \($0)" } ?? "a process"
            lines.append("\(name) works on the store, so its rows are not counted: stop it, or read a backup")
        }
        var parts = [["on the disk", "bytes", "of them preallocated zeros"]]
        let zeros = check.map { disk.zeroByteCount($0.log) }
        parts.append(["log", "\(disk.journal.diskByteCount)", zeros.map { "\($0)" } ?? "not known"])
        parts.append(["database", "\(disk.rows.diskByteCount)", "0"])
        parts.append(["all", "\(disk.all.diskByteCount)", zeros.map { "\($0)" } ?? "not known"])
        lines += display.table(parts)
        if let check {
            lines.append("the log has \(check.log.recordCount) records, \(check.log.recordByteCount) bytes")
        }
        return lines.joined(separator: "\n")
    }

    // MARK: JSON

    private static func json(_ disk: DiskUsage, _ check: StoreCheck?, _ owner: Int32??) -> String {
        let queues = check?.queues.sorted { $0.key < $1.key }.map { app, queue -> JSONText in
            [
                "app": StoreCheck.hex(app), "messages": queue.messageCount, "bytes": queue.byteCount,
                "oldestAcceptedAt": queue.oldest,
            ]
        }
        let sizes: JSONText = [
            "bytes": disk.all.diskByteCount, "logBytes": disk.journal.diskByteCount,
            "databaseBytes": disk.rows.diskByteCount, "preallocatedBytes": check.map { disk.zeroByteCount($0.log) },
        ]
        let report: JSONText = [
            "isRunning": check == nil, "process": (owner ?? nil).map { Int($0) }, "format": check?.format,
            "tables": check.map(tables), "queues": queues, "damages": check?.damageCount,
            "log": check.map { log($0.log) }, "disk": sizes,
        ]
        return report.text
    }

    private static func json(_ check: StoreCheck, _ folder: String) -> String {
        let damages = check.damages.map { damage -> JSONText in
            [
                "kind": damage.kind.rawValue, "place": damage.place, "what": damage.what,
                "means": damage.kind.meaning, "do": damage.kind.advice,
            ]
        }
        let report: JSONText = [
            "folder": folder, "isWhole": check.damageCount == 0, "damageCount": check.damageCount,
            "damages": damages, "format": check.format, "tables": tables(check), "log": log(check.log),
            "staleAlarms": check.staleAlarmCount,
        ]
        return report.text
    }

    private static func tables(_ check: StoreCheck) -> JSONText {
        .object(
            StoreKey.Table.allCases.map { table in
                let figures = check.tables[table] ?? StoreCheck.Table()
                return ("\(table)", ["rows": figures.rowCount, "bytes": figures.byteCount] as JSONText)
            })
    }

    private static func log(_ log: StoreInspection.Log) -> JSONText {
        [
            "segments": log.segmentCount, "records": log.recordCount, "bytes": log.recordByteCount,
            "cutBytes": log.cutByteCount,
        ]
    }
}

struct DiskUsage {
    let all: FileSystem.Usage
    let journal: FileSystem.Usage
    let rows: FileSystem.Usage

    init(_ folder: String) throws {
        journal = try FileSystem.usage(of: folder + "/journal")
        rows = try FileSystem.usage(of: folder + "/rows")
        all = try FileSystem.usage(of: folder)
    }

    /// Returns the preallocated bytes of the log that hold no record.
    func zeroByteCount(_ log: StoreInspection.Log) -> Int { max(0, journal.diskByteCount - log.recordByteCount) }
}
