internal import Foundation
internal import Glibc
internal import Synchronization

/// Ports that stay free until a test's server listens there.
///
/// The ports lie outside the kernel's ephemeral range, from which outgoing connections get theirs. A process reserves whole
/// blocks through sockets with these names, and never returns a port twice. `ports.py` of the integration tests reserves the same
/// blocks through the same names.
package enum FreePorts {
    private static let (lowest, highest, blockSize) = (10_000, 65_535, 50)

    private struct State {
        var held: Set<Int> = []
        var ports = 0..<0
    }
    private static let state = Mutex(State())

    /// Returns a free port that this process has not returned before.
    package static func take() throws -> UInt16 {
        try state.withLock { state in
            while true {
                while let port = state.ports.popFirst() {
                    if isFree(UInt16(port)) { return UInt16(port) }
                }
                let start = blocks(outside: ephemeralRange()).first { !state.held.contains($0) && hold($0) }
                guard let start else { throw NoFreePort() }
                state.held.insert(start)
                state.ports = start..<start + blockSize
            }
        }
    }

    package static func ephemeralRange() -> ClosedRange<Int> {
        let text = try? String(contentsOfFile: "/proc/sys/net/ipv4/ip_local_port_range", encoding: .utf8)
        let numbers = (text ?? "").split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
        return numbers.count == 2 && numbers[0] <= numbers[1] ? numbers[0]...numbers[1] : 32_768...60_999
    }

    /// Returns the first port of each block outside a range, or of all blocks if too few remain.
    package static func blocks(outside range: ClosedRange<Int>) -> [Int] {
        let every = Array(stride(from: lowest, through: highest + 1 - blockSize, by: blockSize))
        let outside = every.filter { $0 + blockSize <= range.lowerBound || $0 > range.upperBound }
        return outside.count >= 40 ? outside : every
    }

    /// Binds a socket to the block's name; the kernel closes it when the process ends.
    private static func hold(_ start: Int) -> Bool {
        let descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let name = Array("\0longwire-test-ports-\(start)".utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
        let size = MemoryLayout<sockaddr_un>.offset(of: \.sun_path)! + name.count
        guard bound(descriptor, &address, size) else {
            Glibc.close(descriptor)
            return false
        }
        return true
    }

    private static func isFree(_ port: UInt16) -> Bool {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        defer { Glibc.close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        return bound(descriptor, &address, MemoryLayout<sockaddr_in>.size)
    }

    private static func bound<Address>(_ descriptor: CInt, _ address: inout Address, _ size: Int) -> Bool {
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, socklen_t(size)) == 0 }
        }
    }
}

package struct NoFreePort: Error, CustomStringConvertible {
    package var description: String { "every block of ports for tests is taken: end the test runs that are under way" }
}
