internal import Glibc
internal import MessageStore

/// The store's settings, from the gateway's.
enum StoreSetup {
    static func configuration(_ configuration: GatewayConfiguration, log: Log) -> EmbeddedStore.Configuration {
        var store = EmbeddedStore.Configuration(folder: configuration.storePath)
        store.durability = configuration.durability == .fsync ? .fsync : .os
        store.journalByteLimit = Int(configuration.limits.journalBytes)
        store.youngMilliseconds = UInt64(configuration.limits.spillAfterSeconds * 1_000)
        store.fatal = { failure in
            log.write(.error, .storeFailed, [.error: .text("\(failure)")])
            log.flush()
            // Nothing of the failed write may be answered, so nothing may run on, not even an orderly stop.
            _exit(ExitCode.store.rawValue)
        }
        return store
    }
}
