import Delivery
import Glibc
import Platform
import TestKit
import Testing

@testable import MessageStore

/// A RocksDB manifest whose last record was torn by a power failure.
@Suite("The tail of the manifest")
struct ManifestTailTests {
    /// Returns a store's folder after a start, some rows and a stop, with the path of its manifest.
    private func stored() throws -> (folder: TemporaryFolder, manifest: String) {
        let folder = try TemporaryFolder()
        let fixture = try StoreFixture(StoreFixture.configuration(folder))
        fixture.put(StoreFixture.key(1, .message), "kept")
        try fixture.sync()
        try fixture.spillAll()
        fixture.close()
        let rows = folder.path + "/rows"
        let name = String(decoding: try FileSystem.read(rows + "/CURRENT").filter { $0 > 32 }, as: UTF8.self)
        return (folder, rows + "/" + name)
    }

    /// Appends the bytes that a power failure may leave of a record.
    private func tear(_ manifest: String, _ tail: [UInt8]) throws {
        let file = try #require(fopen(manifest, "ab"))
        defer { fclose(file) }
        fwrite(tail, 1, tail.count, file)
    }

    private func opens(_ folder: TemporaryFolder, cutByteCount: Int = 0) throws -> Bool {
        let fixture: StoreFixture
        do { fixture = try StoreFixture(StoreFixture.configuration(folder)) } catch { return false }
        defer { fixture.close() }
        #expect(fixture.embedded.recovery.tableListByteCount == cutByteCount)
        return try fixture.text(StoreFixture.key(1, .message)) == "kept"
    }

    /// The first and third sector of the record are there, the second is lost.
    private let torn: [UInt8] =
        [1, 2, 3, 4, 0xDC, 0x05, 1] + Array(repeating: 7, count: 600) + Array(repeating: 0, count: 1_200)
        + Array(repeating: 9, count: 40)

    @Test("a torn record is cut off, and the store opens with all synced rows")
    func hole() throws {
        let (folder, manifest) = try stored()
        let before = try FileSystem.read(manifest)
        try tear(manifest, torn)
        #expect(try FileSystem.read(manifest).withUnsafeBytes(ManifestTail.tornAt) == before.count)
        #expect(try opens(folder, cutByteCount: torn.count))
    }

    @Test("a manifest without a hole is not changed, because changed content is damage")
    func damage() throws {
        let (folder, manifest) = try stored()
        let whole = try FileSystem.read(manifest)
        #expect(whole.withUnsafeBytes(ManifestTail.tornAt) == nil)
        // No sector of it is missing.
        try tear(manifest, Array(torn.prefix(500)) + Array(repeating: 9, count: 1_300))
        #expect(try FileSystem.read(manifest).withUnsafeBytes(ManifestTail.tornAt) == nil)
        #expect(try !opens(folder))
    }

    @Test("a torn record before a complete one is damage")
    func middle() throws {
        let (folder, manifest) = try stored()
        let whole = try withExtendedLifetime(folder) { try FileSystem.read(manifest) }
        #expect((torn + whole).withUnsafeBytes(ManifestTail.tornAt) == nil)
    }
}
