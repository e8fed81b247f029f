internal import Glibc

/// Writes with a timeout to a descriptor that may block forever, such as a pipe without a reader.
///
/// The descriptor's flags are not changed, because other processes may share it. Each write is preceded by `poll` and is no
/// larger than the space that a writable pipe guarantees.
package enum BoundedWriter {
    package enum Outcome: Equatable, Sendable {
        case done
        /// The timeout expired after `byteCount` bytes were written.
        case timedOut(byteCount: Int)
        case failed(SystemError)
    }

    /// The space that a writable pipe guarantees (PIPE_BUF, pipe(7)).
    private static let pieceByteCount = 4_096
    /// The interval at which `isAbandoned` is called.
    private static let stepMilliseconds: CInt = 100

    /// Writes all bytes to a descriptor, or stops at the timeout.
    ///
    /// The write also stops when `isAbandoned`, which is called during the wait, returns `true`.
    package static func write(
        _ bytes: UnsafeRawBufferPointer, to descriptor: CInt, atMostMilliseconds milliseconds: UInt64? = nil,
        isAbandoned: () -> Bool = { false }
    ) -> Outcome {
        let deadline = milliseconds.map { SystemClock.monotonicMilliseconds + $0 }
        var offset = 0
        while offset < bytes.count {
            var look = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            let ready = poll(&look, 1, stepMilliseconds)
            if ready == 0 || ready < 0 && errno == EINTR {
                if isAbandoned() { return .timedOut(byteCount: offset) }
                if let deadline, SystemClock.monotonicMilliseconds >= deadline { return .timedOut(byteCount: offset) }
                continue
            }
            let piece = UnsafeRawBufferPointer(
                rebasing: bytes[offset..<min(bytes.count, offset + pieceByteCount)])
            let count = Glibc.write(descriptor, piece.baseAddress, piece.count)
            if count > 0 {
                offset += count
            } else if count < 0, errno != EINTR, errno != EAGAIN {
                return .failed(.last("write"))
            }
        }
        return .done
    }

    package static func write(
        _ text: String, to descriptor: CInt, atMostMilliseconds milliseconds: UInt64? = nil
    ) -> Outcome {
        Array(text.utf8).withUnsafeBytes { write($0, to: descriptor, atMostMilliseconds: milliseconds) }
    }
}

package enum StandardDescriptors {
    /// Opens the null device as descriptors 0, 1 and 2 where these are closed.
    ///
    /// Must be called before any file is opened. Otherwise the next file or connection gets such a number, and log lines are
    /// written into the journal. Descriptor 1 is opened read-only, so that writes to the missing standard output fail.
    package static func fill() {
        for descriptor: CInt in 0...2 where fcntl(descriptor, F_GETFD) < 0 {
            let mode = descriptor == 1 ? O_RDONLY : O_RDWR
            let opened = open("/dev/null", mode)
            if opened >= 0, opened != descriptor {
                dup2(opened, descriptor)
                close(opened)
            }
        }
    }
}
