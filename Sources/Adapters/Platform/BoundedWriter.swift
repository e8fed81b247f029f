internal import Glibc

/// Writes to a descriptor that may never take anything, such as a pipe that nobody reads: bounded in time.
///
/// The descriptor stays as it is, since others may share it: it is asked whether it takes something, and is given no more at
/// a time than a pipe that says so has room for.
package enum BoundedWriter {
    /// How a write ended.
    package enum Outcome: Equatable, Sendable {
        case done
        /// `byteCount` bytes went out before the time was over.
        case timedOut(byteCount: Int)
        case failed(SystemError)
    }

    /// What a pipe takes when it says that it takes something (PIPE_BUF, pipe(7)).
    private static let pieceByteCount = 4_096
    /// How often `isAbandoned` is asked.
    private static let stepMilliseconds: CInt = 100

    /// Writes all of the bytes to a blocking or a non-blocking descriptor, within so much time if any is given.
    ///
    /// `isAbandoned` is asked while nothing goes out; true ends the write.
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

/// The first three descriptors of a process.
package enum StandardDescriptors {
    /// Gives the numbers 0, 1 and 2 to the null device where they are closed.
    ///
    /// Otherwise the next file or connection gets one of them, and a line of the log is written into the journal. To be
    /// called before anything is opened. What is written to such a standard output fails, as it should.
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
