// A separate file: in a file that imports libevent's module the compiler does not find the system's socket names.

internal import Glibc
package import Platform

extension DetachedConnection {
    /// Creates two connected ends on this machine, for loops that share a descriptor table.
    ///
    /// - Throws: when no descriptors are left.
    package static func pair() throws(SystemError) -> (DetachedConnection, DetachedConnection) {
        var ends: (CInt, CInt) = (-1, -1)
        let kind = CInt(SOCK_STREAM.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let result = withUnsafeMutableBytes(of: &ends) { bytes in
            bytes.withMemoryRebound(to: CInt.self) { socketpair(AF_UNIX, kind, 0, $0.baseAddress) }
        }
        guard result == 0 else { throw .last("socketpair") }
        return (DetachedConnection(adopting: ends.0), DetachedConnection(adopting: ends.1))
    }
}
