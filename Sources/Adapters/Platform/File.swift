internal import CSystem
internal import Glibc

/// An open file, closed when the value dies.
///
/// The calls are the kernel's and may be made from any thread; two writes to one range are the caller's to order.
package struct File: ~Copyable, Sendable {
    package enum Mode: Sendable {
        /// The file must be there.
        case read
        /// The file must be there.
        case readWrite
        /// The file may be there; otherwise it is made.
        case createOrReadWrite
        /// The file must not be there.
        case createNew
    }

    package let path: String
    private let descriptor: CInt

    /// Opens `path`; a new file gets the access rights `permissions`, by default for its owner alone.
    package init(path: String, mode: Mode, permissions: UInt32 = 0o600) throws(SystemError) {
        let flags: CInt =
            switch mode {
            case .read: O_RDONLY
            case .readWrite: O_RDWR
            case .createOrReadWrite: O_RDWR | O_CREAT
            case .createNew: O_RDWR | O_CREAT | O_EXCL
            }
        let result = call("open", path) { open(path, flags | O_CLOEXEC, mode_t(permissions)) }
        guard result >= 0 else { throw .last("open", path) }
        self.path = path
        descriptor = result
    }

    deinit { Glibc.close(descriptor) }

    package func byteCount() throws(SystemError) -> Int {
        var status = stat()
        guard call("fstat", path, { fstat(descriptor, &status) }) == 0 else { throw .last("fstat", path) }
        return Int(status.st_size)
    }

    /// When the file was made, in nanoseconds since 1970: a copy of it has another time, and a renamed one its own.
    ///
    /// - Returns: the time; `nil` on a file system or kernel that does not keep it.
    package func birthTime() -> Int64? {
        let time = longwire_birth_time(descriptor)
        return time > 0 ? time : nil
    }

    /// Writes all of `bytes` at `offset`, however many system calls that takes.
    package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws(SystemError) {
        var done = 0
        while done < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
            let result = transfer("write", path, rest.count) {
                pwrite(descriptor, rest.baseAddress, $0, offset + done)
            }
            guard result >= 0 else { throw .last("write", path) }
            // A regular file takes at least one byte or fails; 0 would loop for ever.
            guard result > 0 else { throw SystemError(operation: "write", subject: path, code: EIO) }
            done += result
        }
    }

    /// Writes all of `bytes` at `offset`.
    package func write(_ bytes: RawSpan, at offset: Int) throws(SystemError) {
        try bytes.withUnsafeBytes { (buffer) throws(SystemError) in try write(buffer, at: offset) }
    }

    /// Writes all `pieces`, one after the other from `offset`: one `pwritev` for up to 1,024 of them.
    package func write(gathering pieces: [UnsafeRawBufferPointer], at offset: Int) throws(SystemError) {
        // The piece to go on with, and how much of it is written.
        var (next, done, position) = (0, 0, offset)
        while true {
            while next < pieces.count, pieces[next].count == done { (next, done) = (next + 1, 0) }
            guard next < pieces.count else { return }
            let count = min(pieces.count - next, Limits.gatheredPieceCount)
            let result = transfer("write", path, count) { count in
                withUnsafeTemporaryAllocation(of: iovec.self, capacity: count) { vectors in
                    for index in 0..<count {
                        let piece = pieces[next + index]
                        let skipped = index == 0 ? done : 0
                        vectors[index] = iovec(
                            iov_base: UnsafeMutableRawPointer(mutating: piece.baseAddress.map { $0 + skipped }),
                            iov_len: piece.count - skipped)
                    }
                    return vectors.baseAddress.map { pwritev(descriptor, $0, CInt(count), position) } ?? 0
                }
            }
            guard result >= 0 else { throw .last("write", path) }
            guard result > 0 else { throw SystemError(operation: "write", subject: path, code: EIO) }
            position += result
            done += result
            while next < pieces.count, done >= pieces[next].count {
                (next, done) = (next + 1, done - pieces[next].count)
            }
        }
    }

    /// Reads into `buffer` from `offset` until it is full or the file ends; returns how many bytes came.
    package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int) throws(SystemError) -> Int {
        var done = 0
        while done < buffer.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[done...])
            let result = transfer("read", path, rest.count) {
                pread(descriptor, rest.baseAddress, $0, offset + done)
            }
            guard result >= 0 else { throw .last("read", path) }
            if result == 0 { break }
            done += result
        }
        return done
    }

    /// Brings the file's data, and what is needed to find it, to the disk.
    package func synchronizeData() throws(SystemError) {
        guard call("fdatasync", path, { fdatasync(descriptor) }) == 0 else { throw .last("fdatasync", path) }
    }

    /// Brings data and all attributes to the disk.
    package func synchronize() throws(SystemError) {
        guard call("fsync", path, { fsync(descriptor) }) == 0 else { throw .last("fsync", path) }
    }

    package func truncate(toByteCount count: Int) throws(SystemError) {
        guard call("ftruncate", path, { ftruncate(descriptor, count) }) == 0 else { throw .last("ftruncate", path) }
    }

    /// Makes the file `count` zero bytes that are really there: blocks reserved, zeros written, all synced.
    ///
    /// Only such a range can later be overwritten and synced without a change of the file's own records: blocks that
    /// are merely reserved turn "written" with the first sync and make it dearer.
    ///
    /// - Parameters:
    ///   - count: how many.
    ///   - isGentle: piece by piece, each synced and followed by a rest as long as it took, since others sync on the same
    ///     disk.
    /// - Throws: what the system said; before anything is written if the disk has no room.
    package func fillWithZeros(byteCount count: Int, isGentle: Bool = false) throws(SystemError) {
        precondition(count >= 0, "a file has no negative size")
        if count > 0, call("fallocate", path, { longwire_fallocate(descriptor, 0, Int64(count)) }) != 0,
            errno != EOPNOTSUPP
        {
            throw .last("fallocate", path)
        }
        let zeros = UnsafeMutableRawBufferPointer.allocate(
            byteCount: min(max(count, 1), Limits.zeroingByteCount), alignment: 4096)
        defer { zeros.deallocate() }
        zeros.initializeMemory(as: UInt8.self, repeating: 0)
        var offset = 0
        while offset < count {
            let size = min(count - offset, zeros.count)
            let began = SystemClock.monotonicNanoseconds
            try write(UnsafeRawBufferPointer(rebasing: zeros[..<size]), at: offset)
            offset += size
            guard isGentle, offset < count else { continue }
            try synchronizeData()
            let took = min(SystemClock.monotonicNanoseconds - began, Limits.restNanoseconds)
            usleep(UInt32(took / 1_000))
        }
        try truncate(toByteCount: count)
        try synchronize()
    }

    /// Makes the file `count` zero bytes whose blocks are reserved and synced, but not written: at once, and each later sync
    /// of a range costs more than after `fillWithZeros`.
    ///
    /// - Throws: what the system said.
    /// - Returns: false when the file system reserves nothing; the file is as it was.
    package func reserve(byteCount count: Int) throws(SystemError) -> Bool {
        precondition(count > 0, "a file is reserved for some bytes")
        if call("fallocate", path, { longwire_fallocate(descriptor, 0, Int64(count)) }) != 0 {
            guard errno == EOPNOTSUPP else { throw .last("fallocate", path) }
            return false
        }
        try truncate(toByteCount: count)
        try synchronize()
        return true
    }

    /// Tells the kernel that the range's cached pages are not needed again; advice only.
    package func forget(from offset: Int, byteCount: Int) {
        posix_fadvise(descriptor, offset, byteCount, POSIX_FADV_DONTNEED)
    }

    /// Tries to take the advisory lock of the whole file; `false` if another open file holds it.
    func tryLock() throws(SystemError) -> Bool {
        if call("flock", path, { flock(descriptor, LOCK_EX | LOCK_NB) }) == 0 { return true }
        if errno == EWOULDBLOCK { return false }
        throw .last("flock", path)
    }

    /// Gives the advisory lock back.
    func unlock() { _ = flock(descriptor, LOCK_UN) }
}
