// The few system calls of the client under one spelling for all platforms; nothing else imports the C library for them.
#if canImport(Darwin)
internal import Darwin
#elseif canImport(Glibc)
internal import Glibc
#elseif canImport(Musl)
internal import Musl
#endif

enum System {
    /// Both clocks.
    ///
    /// The monotonic one goes on while the machine sleeps, or a device that slept through its heartbeat would trust a
    /// dead socket.
    static func now() -> ClientTime {
        #if canImport(Darwin)
        let clock = CLOCK_MONOTONIC
        #else
        let clock = CLOCK_BOOTTIME
        #endif
        return ClientTime(monotonic: milliseconds(of: clock), wall: milliseconds(of: CLOCK_REALTIME))
    }

    private static func milliseconds(of clock: clockid_t) -> Int64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
    }

    static func describe(_ error: CInt) -> String {
        strerror(error).map { String(cString: $0) } ?? "error \(error)"
    }

    static var streamType: CInt {
        #if canImport(Glibc)
        CInt(SOCK_STREAM.rawValue)
        #else
        CInt(SOCK_STREAM)
        #endif
    }

    static var endOfWriting: CInt { CInt(SHUT_WR) }

    static func makeNonBlocking(_ descriptor: CInt) {
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    }

    static func configure(socket descriptor: CInt) {
        makeNonBlocking(descriptor)
        var one: CInt = 1
        let size = socklen_t(MemoryLayout<CInt>.size)
        _ = setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &one, size)
        #if canImport(Darwin)
        _ = setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &one, size)
        #endif
    }

    /// Bytes sent, or the negative errno.
    ///
    /// A peer that left is an error, not a signal.
    static func send(_ bytes: UnsafeRawBufferPointer, to descriptor: CInt) -> Int {
        #if canImport(Darwin)
        let flags: CInt = 0
        #else
        let flags = CInt(MSG_NOSIGNAL)
        #endif
        while true {
            #if canImport(Darwin)
            let count = Darwin.send(descriptor, bytes.baseAddress, bytes.count, flags)
            #elseif canImport(Glibc)
            let count = Glibc.send(descriptor, bytes.baseAddress, bytes.count, flags)
            #else
            let count = Musl.send(descriptor, bytes.baseAddress, bytes.count, flags)
            #endif
            if count >= 0 { return count }
            if errno != EINTR { return -Int(errno) }
        }
    }

    /// Bytes read, 0 at the end, or the negative errno.
    static func receive(into buffer: UnsafeMutableRawBufferPointer, from descriptor: CInt) -> Int {
        while true {
            let count = recv(descriptor, buffer.baseAddress, buffer.count, 0)
            if count >= 0 { return count }
            if errno != EINTR { return -Int(errno) }
        }
    }

    static func isWouldBlock(_ error: Int) -> Bool { error == Int(EAGAIN) || error == Int(EWOULDBLOCK) }
}

extension System {
    /// Under another name, since types with a `close` of their own cannot call the C function by its.
    static func closeDescriptor(_ descriptor: CInt) -> CInt { close(descriptor) }
}
