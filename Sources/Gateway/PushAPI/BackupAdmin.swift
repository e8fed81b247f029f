/// The gateway's current or last backup.
internal import JSON
internal import TextForms

package struct BackupStatus: Sendable, Equatable {
    package enum State: String, Sendable { case none, running, done, failed }
    package var state = State.none
    package var name = ""
    /// The backup's folder on the gateway's machine.
    package var folder = ""
    package var fileCount = 0
    package var byteCount = 0
    /// The time for which the backup paused the moves of rows from the journal to the ordered store; publishes continued.
    package var heldMicroseconds: UInt64 = 0
    package var error: String?
    package init() {}
}

package enum BackupAnswer {
    package static let none = AdminFault(
        .notFound,
        "this gateway's store is on Redis: back up the Redis servers, or stop all gateways and use longwire store copy"
    ).response

    package static func refused(_ reason: String) -> APIResponse { AdminFault(.invalidParameter, reason).response }

    package static func busy(_ name: String) -> APIResponse {
        AdminFault(.conflict, "the backup \(name) is being made: wait until it has ended").response
    }

    package static func status(_ status: BackupStatus) -> APIResponse {
        let (isAny, isDone) = (status.state != .none, status.state == .done)
        return .object([
            "state": status.state.rawValue, "name": isAny ? status.name : nil, "folder": isAny ? status.folder : nil,
            "files": isDone ? status.fileCount : nil, "bytes": isDone ? status.byteCount : nil,
            "heldMicroseconds": isDone ? status.heldMicroseconds : nil, "error": status.error,
        ])
    }
}

extension StrictObject {
    /// Parses the name in `POST /v1/backup`, which must be a folder's name and not a path.
    static func backup(_ body: JSONValue) throws(AdminFault) -> String {
        let fields = try StrictObject(body, known: ["name"])
        guard let name = try fields.text("name") else { throw .invalid("name is missing") }
        guard 1...Limits.backupNameByteCount ~= name.utf8.count, name.isPlain(with: "-_."), !name.hasPrefix("."),
            !name.hasPrefix("-")
        else {
            throw .invalid(
                "name has 1 to \(Limits.backupNameByteCount) letters, digits, dots, - and _, and begins with none of . and -"
            )
        }
        return name
    }
}
