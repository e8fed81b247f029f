internal import Journal
internal import Platform

/// An error that prevents opening or using the store; each description states the cause, the place and the remedy.
package enum StoreError: Error, Equatable, CustomStringConvertible {
    /// Another process has locked the folder.
    case inUse(folder: String, process: Int32?)
    /// The folder has a newer format.
    case newerFormat(folder: String, found: Int, supported: Int)
    /// The format file is invalid.
    case unknownFormat(file: String)
    /// The folder has a database or a journal, but no format file.
    case missingFormat(file: String)
    /// The epoch file is invalid.
    case unknownEpoch(file: String)
    /// Synced bytes of the journal are missing or changed.
    case damagedJournal(file: String, offset: Int, what: String)
    /// Files of the ordered store are missing or changed.
    case damagedDatabase(folder: String, what: String)
    case diskFull(what: String)
    case notWritable(what: String)
    case system(what: String)
    case database(operation: String, what: String)
    /// A partition of the store on Redis has or had an owner with this epoch.
    case epochTaken(part: Int, epoch: UInt64)
    /// An entry of a partition's log on Redis was changed.
    case damagedLog(stream: String, entry: String, what: String)
    /// Another program's entry in a log on Redis blocks every owner; `mending` contains the commands to run.
    case foreignEntry(stream: String, entry: String, mending: String)
    /// A row on Redis is invalid.
    case damagedRow(place: String, what: String)
    /// The folder is the target of an unfinished copy.
    case unfinishedCopy(folder: String)
    /// A server does not answer, or returns an error.
    case redis(what: String)
    case isBackup(folder: String)
    /// A backup cannot be made, read or restored; the text states the reason and the remedy.
    case backup(what: String)

    package var description: String {
        switch self {
        case .inUse(let folder, let process?):
            "the store in \(folder) is in use by process \(process): stop that process, or give this one another folder"
        case .inUse(let folder, nil):
            "the store in \(folder) is in use by another process: stop it, or give this one another folder"
        case .newerFormat(let folder, let found, let supported):
            "the store in \(folder) has format \(found), and this version reads up to \(supported): "
                + "run the version that wrote it, or a later one; to go back, restore a backup from before the upgrade"
        case .unknownFormat(let file):
            "\(file) does not name a store format: this is not a store's folder, or the file was changed; "
                + "restore it from a backup"
        case .missingFormat(let file):
            "\(file) is missing beside a database or a journal, so its format is unknown: nothing was changed; "
                + "restore the whole folder from a backup"
        case .unknownEpoch(let file):
            "\(file) does not name a store's epoch: the file was changed; restore it from a backup, or remove it if the "
                + "journal folder beside it was never moved away"
        case .damagedJournal(let file, let offset, let what):
            "\(file) is damaged at byte \(offset): \(what). Accepted messages may be lost; nothing was changed. "
                + "Restore the store's folder from a backup, or move the journal folder away to start without its messages"
        case .damagedDatabase(let folder, let what):
            "the database in \(folder) is damaged: \(what). Accepted messages may be lost; nothing was changed. "
                + "Restore the store's folder from a backup"
        case .diskFull(let what):
            "no room on the disk (\(what)): free some space and start again; nothing that was accepted is lost"
        case .notWritable(let what):
            "the store may not be written (\(what)): give the server's user write access to the folder"
        case .system(let what):
            "the store failed (\(what)): look at the system's log for the disk; nothing that was accepted is lost"
        case .database(let operation, let what):
            "the store's database failed to \(operation) (\(what)): look at the system's log for the disk"
        case .epochTaken(let part, let epoch):
            "part \(part) of the store has an owner of epoch \(epoch): a later epoch has to be claimed first"
        case .damagedLog(let stream, let entry, let what):
            "entry \(entry) of the stream \(stream) is damaged: \(what). Accepted messages may be lost; nothing was changed. "
                + "Restore the Redis server's data from a backup, or remove the entry with XDEL to continue without its messages"
        case .foreignEntry(let stream, let entry, let mending):
            "another program wrote entry \(entry) to the stream \(stream), and no gateway can follow an epoch of that size. "
                + "Nothing was changed: \(mending), and let nothing but gateways write to keys that begin with {lw:"
        case .damagedRow(let place, let what):
            "the key \(place) on Redis is damaged: \(what). Restore the Redis server's data from a backup"
        case .unfinishedCopy(let folder):
            "the store in \(folder) is a copy that did not end, so it is not whole: run longwire store copy or import to it again "
                + "with --replace, or remove the folder and begin anew"
        case .isBackup(let folder):
            "\(folder) is a backup, and no gateway works on one: longwire store restore \(folder) FOLDER makes a store of it"
        case .backup(let what): what
        case .redis(let what):
            "the store on Redis failed (\(what)): look at the server's log; nothing that was accepted is lost"
        }
    }

    init(_ error: SystemError) {
        // EACCES, EPERM, EROFS
        self =
            if error.isOutOfSpace {
                .diskFull(what: error.description)
            } else if [1, 13, 30].contains(error.code) {
                .notWritable(what: error.description)
            } else {
                .system(what: error.description)
            }
    }

    init(_ error: JournalError) {
        switch error {
        case .system(let error): self.init(error)
        case .damaged(let file, let offset, let what): self = .damagedJournal(file: file, offset: offset, what: what)
        }
    }

    /// Maps RocksDB's error of opening the database in `folder`.
    init(opening folder: String, message: String) {
        // A missing file that the manifest names is reported as a failed system call.
        if message.hasPrefix("Corruption") || message.contains("No such file") || message.hasPrefix("Invalid argument")
        {
            self = .damagedDatabase(folder: folder, what: message)
        } else {
            self = StoreError(operation: "open", message: message.contains(folder) ? message : "\(folder): \(message)")
        }
    }

    /// Maps a RocksDB error by its text, since no error code is available.
    init(operation: String, message: String) {
        self =
            if message.contains("No space left") {
                .diskFull(what: message)
            } else if message.contains("Permission denied") || message.contains("Read-only") {
                .notWritable(what: message)
            } else {
                .database(operation: operation, what: message)
            }
    }
}
