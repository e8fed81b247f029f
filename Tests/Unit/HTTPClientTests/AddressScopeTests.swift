import Testing

@testable import HTTPClient

@Suite("Addresses that a call may connect to") struct AddressScopeTests {
    static let four: [(bytes: [UInt8], scope: AddressScope)] = [
        ([127, 0, 0, 1], .loopback), ([127, 255, 255, 255], .loopback), ([8, 8, 8, 8], .global),
        ([10, 0, 0, 1], .restricted), ([11, 0, 0, 1], .global), ([100, 64, 0, 1], .restricted),
        ([100, 128, 0, 1], .global), ([169, 254, 169, 254], .restricted), ([172, 16, 0, 1], .restricted),
        ([172, 31, 255, 255], .restricted), ([172, 32, 0, 1], .global), ([192, 168, 1, 1], .restricted),
        ([192, 169, 1, 1], .global), ([198, 18, 0, 1], .restricted), ([0, 0, 0, 0], .restricted),
        ([224, 0, 0, 1], .restricted), ([255, 255, 255, 255], .restricted), ([223, 255, 255, 255], .global),
    ]

    @Test("IPv4, also within IPv6, 6to4 and NAT64", arguments: four)
    func versionFour(bytes: [UInt8], scope: AddressScope) {
        #expect(AddressScope.scope(ofIPv4: bytes.reduce(0) { $0 << 8 | UInt32($1) }) == scope)
        let mapped = [UInt8](repeating: 0, count: 10) + [0xFF, 0xFF] + bytes
        #expect(AddressScope.scope(ofIPv6: mapped) == scope)
        let translated: AddressScope = scope == .global ? .global : .restricted
        let prefix: [UInt8] = [0, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0]
        #expect(AddressScope.scope(ofIPv6: prefix + bytes) == translated)
        #expect(AddressScope.scope(ofIPv6: [0x20, 0x02] + bytes + [UInt8](repeating: 0, count: 10)) == translated)
    }

    static let six: [(head: [UInt8], scope: AddressScope)] = [
        ([0x20, 0x01, 0x48, 0x60], .global), ([0x2A, 0x00], .global), ([0xFE, 0x80], .restricted),
        ([0xFC, 0x00], .restricted), ([0xFD, 0x12], .restricted), ([0xFF, 0x02], .restricted),
        ([0x20, 0x01, 0x0D, 0xB8], .restricted), ([0x20, 0x01, 0x00, 0x00], .restricted), ([0x01, 0x00], .restricted),
        ([0x40, 0x00], .restricted),
    ]

    @Test("IPv6", arguments: six)
    func versionSix(head: [UInt8], scope: AddressScope) {
        #expect(AddressScope.scope(ofIPv6: head + [UInt8](repeating: 0, count: 14 - head.count) + [0, 1]) == scope)
    }

    @Test("the loopback and the unspecified address of IPv6")
    func specialVersionSix() {
        #expect(AddressScope.scope(ofIPv6: [UInt8](repeating: 0, count: 15) + [1]) == .loopback)
        #expect(AddressScope.scope(ofIPv6: [UInt8](repeating: 0, count: 16)) == .restricted)
    }

    @Test(
        "a call for global addresses opens no socket to this machine",
        arguments: ["http://127.0.0.1:9", "http://[::1]:9"])
    func forbidden(url: String) throws {
        var call = HTTPCall(url, headers: [], userAgent: "test", timeoutMilliseconds: 10_000)
        (call.isLoopbackOnly, call.addresses) = (false, .global)
        let transfers = try #require(HTTPTransfers())
        let transfer = try #require(HTTPTransfer(call, in: transfers))
        defer { transfer.leave() }
        while true {
            transfers.perform()
            if let ended = transfers.nextEnded() {
                guard case .failure(let failure) = ended.result else {
                    Issue.record("connected")
                    return
                }
                #expect(failure.kind == .forbiddenAddress)
                #expect(!failure.mayHaveArrived)
                #expect(!failure.cause.contains("127.0.0.1:9"))
                return
            }
            transfers.wait(milliseconds: 100)
        }
    }
}
