internal import Foundation
internal import MessageStore
internal import Platform
internal import TextForms

extension StoreCommands {
    static let backup = CommandSyntax(
        name: "store backup",
        summary: "Makes a backup of a store: of a running gateway's, or of a stopped one's folder.",
        operands: [
            (
                "TARGET",
                "The backup's name: the gateway makes it in its folder store.backups. With --from: the folder to create, which "
                    + "must not exist."
            )
        ],
        options: [
            .value("from", "FOLDER", "The data folder of a stopped gateway. Without it the running gateway is asked."),
            .value("wait-seconds", "S", "How long to wait for its end, 0 to 86400. Default: 3600."),
        ] + AdminClient.options,
        notes: [
            "A running gateway continues. The backup has everything that it accepted before the call, and perhaps some later "
                + "changes. Every file is read again and compared with its SHA-256 digest. The credential needs the permission admin "
                + "for all apps.",
            "restore refuses an incomplete backup. Exit code 1 if the backup was not made, or has not ended after the time.",
        ]
    ) { arguments, context in
        let target = arguments.operands[0]
        if let folder = arguments.text("from") {
            let backup = try StoreBackup.make(of: folder, at: target, time: Int64(SystemClock.wallMilliseconds))
            context.write("made \(target): \(backup.entries.count) files, \(backup.byteCount) bytes")
            return .done
        }
        let client = try AdminClient(Credentials(arguments, context))
        let seconds = UInt64(try arguments.number("wait-seconds", in: 0...86_400) ?? 3_600)
        let end = SystemClock.monotonicMilliseconds + seconds * 1_000
        var status = try client.send(
            .post, "/v1/backup", body: ["name": target]
        ).object
        while status["state"] as? String == "running" {
            guard SystemClock.monotonicMilliseconds < end else {
                throw CommandFailure.refused("\(target) is still being made; GET /v1/backup reports its end")
            }
            Thread.sleep(forTimeInterval: 0.1)
            status = try client.send(.get, "/v1/backup").object
        }
        let folder = status["folder"] as? String ?? target
        guard status["state"] as? String == "done", status["name"] as? String == target else {
            throw CommandFailure.refused(
                "no backup was made: \(status["error"] as? String ?? "another one took its place")")
        }
        context.write("made \(folder): \(status["files"] ?? 0) files, \(status["bytes"] ?? 0) bytes")
        return .done
    }

    static let restore = CommandSyntax(
        name: "store restore", summary: "Makes a store of a backup, after a check of every file.",
        operands: [
            ("BACKUP", "The backup's folder."),
            ("FOLDER", "The target: an empty or missing folder. It becomes the gateway's store.path."),
        ],
        notes: [
            "First every file of the backup is compared with its digest, then it is written, then the new store is read as a whole, "
                + "as by store check. Until that has ended no gateway starts on FOLDER.",
            "The store has nothing newer than the backup: messages accepted since then are lost. Messages delivered since "
                + "then may be delivered again. The client does not filter repeats by msgId, so the app compares "
                + "msgIds where that matters.",
            "The store begins a new history: earlier positions of devices, cursors of feeds and tokens of the push API become "
                + "invalid. docs/use/Operations.md, \"Backup and restore\", describes the repeats.",
            "Exit code 1 when the backup is damaged, or FOLDER is in use or not empty.",
        ]
    ) { arguments, context in
        let (source, folder) = (arguments.operands[0], arguments.operands[1])
        let backup = try StoreBackup.restore(source, to: folder)
        let inspection = try StoreInspection(folder: folder, isRestoring: true)
        defer { inspection.close() }
        let check = StoreCheck(inspection)
        guard check.damageCount == 0 else {
            let first = check.damages.first.map { ": \($0.place): \($0.what)" } ?? ""
            throw CommandFailure.refused(
                "the files are those of the backup, but \(check.damageCount) things in it are damaged\(first); longwire store "
                    + "check \(source) lists all; \(folder) is not usable: remove it")
        }
        try EmbeddedStore.endCopy(to: folder, wall: Int64(SystemClock.wallMilliseconds))
        let rowCount = check.tables.values.reduce(0) { $0 + $1.rowCount }
        context.write(
            "restored \(folder): \(backup.entries.count) files, \(backup.byteCount) bytes, \(rowCount) rows; nothing is "
                + "damaged")
        return .done
    }
}
