import Configuration
import Platform
import Testing

@testable import Gateway

@Suite("Generated credentials")
struct GeneratedCredentialsTests {
    private func complete(_ folder: String, demo: Bool) throws -> (GatewayConfiguration, GeneratedCredentials) {
        var configuration = GatewayConfiguration()
        configuration.storePath = folder
        configuration.usesDemoApp = demo
        var random = SystemRandomNumberGenerator()
        let generated = try GeneratedCredentials.complete(&configuration, random: &random)
        return (configuration, generated)
    }

    @Test("the demo app is created once, readable only by its owner, and found again")
    func demo() throws {
        let folder = TemporaryFolder()
        let (configuration, first) = try complete(folder.path, demo: true)
        var demo = try #require(first.demo)
        #expect(configuration.app(id: demo.appID)?.masterSecrets == [demo.masterSecret])
        #expect(configuration.credential(bearing: demo.adminToken.bytes)?.may(.admin) == true)
        #expect(try !FileText.read("\(folder.path)/demo.json", limit: 10_000).isReadableByOthers)
        demo.deviceAddress = "127.0.0.1:7000"
        try demo.save(in: folder.path)
        let (_, second) = try complete(folder.path, demo: true)
        #expect(second.demo == demo)
        #expect(second.adminToken == demo.adminToken)
        #expect(folder.names == ["demo.json"])
    }

    #if DEBUG
    @Test("generated credentials are used only once they are on disk, with folder and name", arguments: [false, true])
    func isSynced(demo: Bool) throws {
        // The syncs: the parent folder, the data folder, the file, and its name.
        for number in 1...4 {
            let folder = TemporaryFolder()
            let plan = FaultPlan(folder: folder.path, kind: .error(5), at: number, extent: .once) { $0 == "fsync" }
            defer { plan.remove() }
            #expect(throws: ConfigurationError.self) { try complete(folder.path + "/a/data", demo: demo) }
            #expect(plan.hits.count == 1)
        }
    }
    #endif

    @Test("without configured credentials the admin listener gets one permanent token")
    func adminToken() throws {
        let folder = TemporaryFolder()
        let first = try complete(folder.path, demo: false).1
        #expect(first.demo == nil)
        #expect(first.adminToken != nil)
        #expect(try complete(folder.path, demo: false).1 == first)
        #expect(folder.names == ["admin-token"])
    }

    @Test("a damaged file is refused, not replaced", arguments: ["demo.json", "admin-token"])
    func damaged(name: String) throws {
        let folder = TemporaryFolder()
        folder.write(name, "?")
        #expect(throws: ConfigurationError.self) { try complete(folder.path, demo: name == "demo.json") }
        #expect(try FileText.read("\(folder.path)/\(name)", limit: 10).bytes == [UInt8(ascii: "?")])
    }

    @Test("a data folder that cannot be created is named")
    func noFolder() throws {
        let folder = TemporaryFolder()
        let file = folder.write("file", "")
        let error = #expect(throws: ConfigurationError.self) { try complete(file, demo: true) }
        #expect(error?.description.contains(file) == true)
    }
}
