internal import CSystem
internal import Glibc

/// Socket calls that Swift's Glibc module lacks or whose results need interpretation.
package enum Sockets {
    package enum Accepted: Equatable, Sendable {
        case connection(descriptor: CInt)
        /// No connection is pending.
        case none
        /// The peer disconnected before the connection was accepted; the caller should retry immediately.
        case aborted
        /// No descriptor or memory is left; a retry is useful only after something was closed.
        case exhausted(SystemError)
        case failed(SystemError)
    }

    /// Accepts a pending connection as a non-blocking, close-on-exec descriptor and fills `address` with its sockaddr.
    package static func accept(
        on listener: CInt, address: UnsafeMutableRawBufferPointer, addressByteCount: inout UInt32
    ) -> Accepted {
        addressByteCount = UInt32(address.count)
        let descriptor = longwire_accept4(listener, address.baseAddress, &addressByteCount)
        if descriptor >= 0 { return .connection(descriptor: descriptor) }
        let failure = SystemError.last("accept4")
        switch failure.code {
        case EAGAIN: return .none
        // The last five are errors of the new connection that Linux reports through accept (accept(2)).
        case ECONNABORTED, EINTR, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH:
            return .aborted
        case EMFILE, ENFILE, ENOBUFS, ENOMEM: return .exhausted(failure)
        default: return .failed(failure)
        }
    }

    package static func hasInput(descriptor: CInt) -> Bool {
        var byte: UInt8 = 0
        return recv(descriptor, &byte, 1, CInt(MSG_PEEK | MSG_DONTWAIT)) > 0
    }

    /// Returns whether the peer has closed or reset the connection; unread bytes hide the end, and the result is `false` then.
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
