internal import CSystem
internal import Glibc

/// The socket calls that Swift's own Glibc module cannot see, or whose answer needs a reading.
package enum Sockets {
    /// What a call on a non-blocking descriptor came to.
    package enum Accepted: Equatable, Sendable {
        case connection(descriptor: CInt)
        /// Nobody waits.
        case none
        /// The peer left before it was accepted; try again at once.
        case aborted
        /// No descriptor or no memory is left: accepting again only helps after something was closed.
        case exhausted(SystemError)
        case failed(SystemError)
    }

    /// Takes one waiting connection as a non-blocking, close-on-exec descriptor and fills `address` with its sockaddr.
    package static func accept(
        on listener: CInt, address: UnsafeMutableRawBufferPointer, addressByteCount: inout UInt32
    ) -> Accepted {
        addressByteCount = UInt32(address.count)
        let descriptor = longwire_accept4(listener, address.baseAddress, &addressByteCount)
        if descriptor >= 0 { return .connection(descriptor: descriptor) }
        let failure = SystemError.last("accept4")
        switch failure.code {
        case EAGAIN: return .none
        // The last five are errors of the new connection that Linux passes on from its socket (accept(2)).
        case ECONNABORTED, EINTR, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH:
            return .aborted
        case EMFILE, ENFILE, ENOBUFS, ENOMEM: return .exhausted(failure)
        default: return .failed(failure)
        }
    }

    /// Whether bytes have come that nobody has read.
    package static func hasInput(descriptor: CInt) -> Bool {
        var byte: UInt8 = 0
        return recv(descriptor, &byte, 1, CInt(MSG_PEEK | MSG_DONTWAIT)) > 0
    }

    /// Whether the peer has closed its side or reset the connection, without taking a byte from it.
    ///
    /// Bytes that wait (a pipelined request) hide an end behind them; then the peer counts as there.
    package static func isPeerGone(descriptor: CInt) -> Bool {
        var byte: UInt8 = 0
        while true {
            let count = recv(descriptor, &byte, 1, CInt(MSG_PEEK | MSG_DONTWAIT))
            if count > 0 { return false }
            if count == 0 { return true }
            if errno == EINTR { continue }
            return errno != EAGAIN
        }
    }
}
