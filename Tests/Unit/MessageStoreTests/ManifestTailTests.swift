import Delivery
import Glibc
import Platform
import TestKit
import Testing

@testable import MessageStore

/// A list of tables whose last record a power failure has torn.
@Suite("The tail of the list of tables")
struct ManifestTailTests {
    /// A store's folder after a start, some rows and an end; the path of its list of tables.
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

    /// Appends what a power failure may leave of a record.
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

    /// The first sector of the record is there and the second was lost, the third is there again.
    private let torn: [UInt8] =
        [1, 2, 3, 4, 0xDC, 0x05, 1] + Array(repeating: 7, count: 600) + Array(repeating: 0, count: 1_200)
        + Array(repeating: 9, count: 40)

    @Test("a torn record is cut, and the store opens with everything that was synced")
    func hole() throws {
        let (folder, manifest) = try stored()
        let before = try FileSystem.read(manifest)
        try tear(manifest, torn)
        #expect(try FileSystem.read(manifest).withUnsafeBytes(ManifestTail.tornAt) == before.count)
        #expect(try opens(folder, cutByteCount: torn.count))
    }

    @Test("a list without a hole is left as it is: what was written and has changed is damage")
    func damage() throws {
        let (folder, manifest) = try stored()
        let whole = try FileSystem.read(manifest)
        #expect(whole.withUnsafeBytes(ManifestTail.tornAt) == nil)
        // No sector of it is missing.
        try tear(manifest, Array(torn.prefix(500)) + Array(repeating: 9, count: 1_300))
        #expect(try FileSystem.read(manifest).withUnsafeBytes(ManifestTail.tornAt) == nil)
        #expect(try !opens(folder))
    }

    @Test("a torn record in front of a whole one is damage")
    func middle() throws {
        let (folder, manifest) = try stored()
        let whole = try withExtendedLifetime(folder) { try FileSystem.read(manifest) }
        #expect((torn + whole).withUnsafeBytes(ManifestTail.tornAt) == nil)
    }
}
