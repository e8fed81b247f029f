// A file of its own: beside libevent's module the compiler loses the system's names of sockets in other files.

internal import Glibc
package import Platform

extension DetachedConnection {
    /// Two connected ends on this machine, for loops that share a table of descriptors.
    ///
    /// - Throws: when the system has no descriptors.
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
