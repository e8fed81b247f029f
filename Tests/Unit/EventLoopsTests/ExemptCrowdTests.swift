import EventLoopsKit
import Glibc
import Testing

@testable import EventLoops

@Suite("A full HTTP server and the addresses that an operator exempts")
struct ExemptCrowdTests {
    /// Returns the numbers of a full server: refused newcomers, and connections that were closed for one.
    private func fill(exempt: String) throws -> [UInt64] {
        let addresses = AddressGuard()
        addresses.set(AddressRules(), exempt: [try #require(AddressRange(exempt))])
        let counts = Probe<UInt64>()
        try withLoop { loop in
            let handle = ListeningSocket.Handle(try ListeningSocket("127.0.0.1:0"))
            _ = loop.run {
                var configuration = HTTPServer.Configuration()
                configuration.connectionLimit = 4
                let server = HTTPServer(on: loop, configuration: configuration, handler: { _ in })
                guard (try? server.listen(handle.take(), addresses: addresses)) != nil
                else { return }
                var descriptors: [CInt] = []
                // Four connections of one network with unread bytes, and a newcomer of another network.
                for network in [2, 2, 2, 2, 3] as [UInt32] {
                    guard let (near, far) = try? DetachedConnection.pair() else { return }
                    let descriptor = near.take().descriptor
                    _ = write(descriptor, "GET / HTTP/1.1\r\n", 16)
                    descriptors.append(descriptor)
                    var storage = sockaddr_storage()
                    withUnsafeMutableBytes(of: &storage) { bytes in
                        var address = sockaddr_in()
                        address.sin_family = sa_family_t(AF_INET)
                        address.sin_addr.s_addr = (0xC000_0007 | network << 8).bigEndian
                        bytes.storeBytes(of: address, as: sockaddr_in.self)
                    }
                    guard let peer = SocketAddress(&storage) else { return }
                    var content = far.take()
                    if case .counted(let counted) = addresses.admit(peer, isHTTP: true, now: 1) {
                        content.counted = CountedAddress(addressGuard: addresses, network: counted)
                    }
                    server.accept(DetachedConnection(content, peer: peer))
                }
                counts.note(server.room.refusedCount)
                counts.note(server.room.displacedCount)
                server.close()
                for descriptor in descriptors { close(descriptor) }
            }
        }
        return counts.values
    }

    @Test("a crowd of one address with unread requests makes room, unless its address is exempt")
    func unread() throws {
        #expect(try fill(exempt: "192.0.9.0/24") == [0, 1])
        #expect(try fill(exempt: "192.0.2.0/24") == [1, 0])
    }
}
