internal import CSystem
internal import Glibc

/// An open file, closed with the value; calls are safe from any thread, but not two writes to the same range.
package struct File: ~Copyable, Sendable {
    package enum Mode: Sendable {
        /// The file must exist.
        case read
        /// The file must exist.
        case readWrite
        /// The file is created if it does not exist.
        case createOrReadWrite
        /// The file must not exist.
        case createNew
    }

    package let path: String
    private let descriptor: CInt

    /// Opens `path`; a new file gets `permissions`, by default for its owner only.
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

    /// Returns the creation time in nanoseconds since 1970, which a rename keeps and a copy does not.
    ///
    /// - Returns: the time, or `nil` if the file system or kernel does not store it.
    package func birthTime() -> Int64? {
        let time = longwire_birth_time(descriptor)
        return time > 0 ? time : nil
    }

    /// Writes all of `bytes` at `offset`, with as many system calls as needed.
    package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws(SystemError) {
        var done = 0
        while done < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[done...])
            let result = transfer("write", path, rest.count) {
                pwrite(descriptor, rest.baseAddress, $0, offset + done)
            }
            guard result >= 0 else { throw .last("write", path) }
            // A regular file accepts at least one byte or fails. A result of 0 would repeat forever.
            guard result > 0 else { throw SystemError(operation: "write", subject: path, code: EIO) }
            done += result
        }
    }

    package func write(_ bytes: RawSpan, at offset: Int) throws(SystemError) {
        try bytes.withUnsafeBytes { (buffer) throws(SystemError) in try write(buffer, at: offset) }
    }

    /// Writes all `pieces` consecutively from `offset`, up to 1,024 per `pwritev`.
    package func write(gathering pieces: [UnsafeRawBufferPointer], at offset: Int) throws(SystemError) {
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

    /// Reads into `buffer` from `offset` until it is full or the file ends; returns the number of bytes read.
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

    /// Flushes the file's data, and the metadata needed to read it, to the disk.
    package func synchronizeData() throws(SystemError) {
        guard call("fdatasync", path, { fdatasync(descriptor) }) == 0 else { throw .last("fdatasync", path) }
    }

    /// Flushes data and all metadata to the disk.
    package func synchronize() throws(SystemError) {
        guard call("fsync", path, { fsync(descriptor) }) == 0 else { throw .last("fsync", path) }
    }

    package func truncate(toByteCount count: Int) throws(SystemError) {
        guard call("ftruncate", path, { ftruncate(descriptor, count) }) == 0 else { throw .last("ftruncate", path) }
    }

    /// Fills the file with `count` zero bytes: blocks reserved, zeros written, all synced.
    ///
    /// Only such a range can later be overwritten and synced without a metadata update. Blocks that are only reserved are
    /// converted at the first sync, which makes the sync slower.
    ///
    /// - Parameters:
    ///   - count: the size in bytes.
    ///   - isGentle: whether to write in pieces, each synced and followed by a pause of up to 10 ms, because other threads sync on
    ///     the same disk.
    /// - Throws: the system's error. A full disk is detected before anything is written.
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

    /// Reserves and syncs `count` zero bytes without writing them.
    ///
    /// The reservation is fast, but each later sync of a range costs more than after `fillWithZeros`.
    ///
    /// - Throws: the system's error.
    /// - Returns: `false` when the file system cannot reserve blocks. The file is unchanged then.
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

    /// Advises the kernel to drop the range's cached pages.
    package func forget(from offset: Int, byteCount: Int) {
        posix_fadvise(descriptor, offset, byteCount, POSIX_FADV_DONTNEED)
    }

    /// Tries to take the advisory lock of the whole file; returns `false` if another open file holds the lock.
    func tryLock() throws(SystemError) -> Bool {
        if call("flock", path, { flock(descriptor, LOCK_EX | LOCK_NB) }) == 0 { return true }
        if errno == EWOULDBLOCK { return false }
        throw .last("flock", path)
    }

    func unlock() { _ = flock(descriptor, LOCK_UN) }
}
