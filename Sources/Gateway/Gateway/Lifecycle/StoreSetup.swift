internal import Glibc
internal import MessageStore
internal import Platform
internal import TextForms

enum StoreSetup {
    /// Returns the reason the store could not use or create this folder, or `nil`; changes nothing on disk.
    static func problem(ofFolder path: String) -> String? {
        func reason(_ what: String) -> String {
            "store.path: \(path) \(what): \(String(cString: strerror(errno))); it must be a folder that this user may write"
        }
        if FileSystem.exists(path) {
            guard FileSystem.isDirectory(path) else { return "store.path: \(path) is no folder" }
            return access(path, R_OK | W_OK | X_OK) == 0 ? nil : reason("cannot be used")
        }
        // Any error but ENOENT means that the path is unusable. A missing folder is created in its nearest existing ancestor.
        guard errno == ENOENT else { return reason("cannot be used") }
        var above = path
        while !FileSystem.exists(above) {
            guard errno == ENOENT, let slash = above.dropLast().lastIndex(of: "/") else {
                if errno == ENOENT, !above.hasPrefix("/") {
                    above = "."
                    break
                }
                return reason("cannot be made")
            }
            above = slash == above.startIndex ? "/" : String(above[..<slash])
        }
        guard FileSystem.isDirectory(above) else { return "store.path: \(path) cannot be made: \(above) is no folder" }
        return access(above, W_OK | X_OK) == 0 ? nil : reason("cannot be made in \(above)")
    }

    static func configuration(
        _ configuration: GatewayConfiguration, _ descriptors: DescriptorBudget, log: Log, time: SharedTime
    ) -> EmbeddedStore.Configuration {
        var store = EmbeddedStore.Configuration(folder: configuration.storePath)
        store.durability = configuration.durability == .fsync ? .fsync : .os
        store.journalByteLimit = Int(configuration.limits.journalBytes)
        store.segmentByteCount = MessageStore.Limits.segmentByteCount(journalByteLimit: store.journalByteLimit)
        store.uncommittedByteLimit = min(
            configuration.limits.uncommittedBytes,
            MessageStore.Limits.uncommittedByteCount(journalByteLimit: store.journalByteLimit))
        store.requestByteLimit = Int(configuration.limits.requestBytes)
        store.traceByteLimit = Int(configuration.limits.traceBytes)
        store.now = { time.now }
        store.wall = { ClockReader.reading().wall }
        store.openFileLimit = descriptors.storeFileCount
        store.youngMilliseconds = UInt64(configuration.limits.spillAfterSeconds * 1_000)
        store.fatal = { failure in
            log.write(.error, .storeFailed, [.error: .text("\(failure)")])
            log.flush()
            // Even a clean stop would be unsafe: it would send answers, and these could depend on the failed write.
            _exit(ExitCode.failedOutput.rawValue)
        }
        return store
    }
}
