internal import MessageStore
internal import Platform
internal import PushAPI
internal import Synchronization

/// Makes backups of the running store, one at a time, on a dedicated thread.
final class BackupService: Sendable {
    private struct State {
        var status = BackupStatus()
        var thread: JoinableThread?
        var isStopping = false
    }

    private let state = Lock(State())
    private let isCancelled = Atomic<Bool>(false)

    var status: BackupStatus { state.withLock { $0.status } }

    /// Starts a backup; can be called from any loop.
    ///
    /// - Parameters:
    ///   - name: The backup's name, already validated by the API.
    ///   - folder: The folder of all backups, created if missing.
    ///   - store: The store to back up.
    ///   - credential: The name of the requesting credential, for the log.
    ///   - log: The log for the result.
    /// - Returns: The API's answer: the running backup, or the reason for the refusal.
    func begin(
        _ name: String, in folder: String, of store: EmbeddedStore, by credential: String, log: Log
    ) -> APIResponse {
        let path = folder + "/" + name
        do throws(SystemError) {
            if !FileSystem.exists(folder) { try FileSystem.createDirectory(folder) }
        } catch { return BackupAnswer.refused("store.backups: \(error)") }
        guard !FileSystem.exists(path) else {
            return BackupAnswer.refused("\(path) is there already: choose another name")
        }
        return state.withLock { state in
            guard !state.isStopping else { return BackupAnswer.busy("of the last minute") }
            guard state.status.state != .running else { return BackupAnswer.busy(state.status.name) }
            // The thread has already set its final status, so this join is short.
            state.thread?.join()
            state.thread = nil
            var status = BackupStatus()
            (status.state, status.name, status.folder) = (.running, name, path)
            do throws(SystemError) {
                let begun = status
                state.thread = try JoinableThread(named: "backup") { [self] in
                    make(begun, of: store, by: credential, log)
                }
            } catch { return BackupAnswer.refused("\(error)") }
            state.status = status
            return BackupAnswer.status(status)
        }
    }

    private func make(_ begun: BackupStatus, of store: EmbeddedStore, by credential: String, _ log: Log) {
        var status = begun
        let began = SystemClock.monotonicMilliseconds
        do throws(StoreError) {
            let backup = try store.backUp(to: status.folder) { isCancelled.load(ordering: .relaxed) }
            status.state = .done
            (status.fileCount, status.byteCount) = (backup.entries.count, backup.byteCount)
            status.heldMicroseconds = backup.heldMicroseconds
            log.write(
                .info, .backupMade,
                [
                    .name: .text(credential), .path: .text(status.folder), .bytes: LogValue(backup.byteCount),
                    .count: LogValue(backup.entries.count),
                    .milliseconds: LogValue(Int(SystemClock.monotonicMilliseconds - began)),
                ])
        } catch {
            (status.state, status.error) = (.failed, "\(error)")
            log.write(
                .error, .backupFailed,
                [.name: .text(credential), .path: .text(status.folder), .error: .text("\(error)")])
        }
        let ended = status
        state.withLock { $0.status = ended }
    }

    /// Cancels a running backup and waits for its thread, before the store closes.
    func stop() {
        isCancelled.store(true, ordering: .relaxed)
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        thread?.join()
    }
}
