internal import MessageStore
internal import Platform
internal import PushAPI
internal import Synchronization

/// Makes backups of the running store, one at a time, on a thread of its own.
final class BackupService: Sendable {
    private struct State {
        var status = BackupStatus()
        var thread: JoinableThread?
        var isStopping = false
    }

    private let state = Lock(State())
    private let isCancelled = Atomic<Bool>(false)

    var status: BackupStatus { state.withLock { $0.status } }

    /// Begins a backup; any loop calls it.
    ///
    /// - Parameters:
    ///   - name: checked by the API.
    ///   - folder: where backups are; made if it is not there.
    ///   - store: what is to be backed up.
    ///   - credential: whose wish it is, for the log.
    ///   - log: gets what became of it.
    /// - Returns: the answer.
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
            // It has told its end, so this waits for its last instructions only.
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

    /// Ends what is under way, and waits for it; before the store closes.
    func stop() {
        isCancelled.store(true, ordering: .relaxed)
        let thread = state.withLock { state in
            state.isStopping = true
            return state.thread.take()
        }
        thread?.join()
    }
}
