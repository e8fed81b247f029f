package import Delivery
internal import MessageStore
internal import Platform

/// A folder of the embedded engine.
package final class EmbeddedPlace: CopyPlace {
    package let name: String
    private let store: EmbeddedStore
    private let loop = CopyLoop()
    private var writer: ShardWriter?

    /// Opens a folder that no process works in.
    ///
    /// - Parameters:
    ///   - folder: the gateway's `store.path`.
    ///   - mustExist: a source has to be there already.
    /// - Throws: `CopyFailure` for a folder that is in use or no store's; the store's error otherwise.
    package init(_ folder: String, mustExist: Bool) throws {
        name = folder
        // A folder that is not there would become a new and empty store, and the copy one of nothing.
        if mustExist, !FileSystem.exists(folder + "/format") { throw CopyFailure("there is no store in \(folder)") }
        let configuration = EmbeddedStore.Configuration(folder: folder)
        store = try EmbeddedStore(configuration)
    }

    package func visitRows(of table: StoreKey.Table, _ body: (StoredRow) -> Void) throws {
        try store.visitRows(of: table, body)
    }

    package func write(_ rows: [CopiedRow]) {
        let writer = writer ?? ShardWriter([store.makeLoopStore(index: 0, of: 1, post: loop.post)], loop)
        self.writer = writer
        writer.write(rows)
    }

    package func finishWriting() { writer?.finish() }

    package func close() {
        writer?.close()
        writer = nil
        store.close()
    }
}
