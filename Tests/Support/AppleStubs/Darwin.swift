// Declarations of Apple's C library that the client uses, in the form in which Swift imports them on Apple platforms. Only to
// check types against.
public typealias mode_t = UInt16
public typealias nfds_t = UInt32
public struct _opaque_pthread_t {}
public typealias pthread_t = UnsafeMutablePointer<_opaque_pthread_t>
public struct pthread_attr_t {}
public struct pthread_mutex_t { public init() {} }
public struct pthread_mutexattr_t {}
public struct pthread_cond_t { public init() {} }
public struct pthread_condattr_t {}
public struct clockid_t: Sendable {}
public struct timespec {
    public var tv_sec = 0
    public var tv_nsec = 0
    public init() {}
}
public struct pollfd {
    public var fd: Int32
    public var events: Int16
    public var revents: Int16
    public init(fd: Int32, events: Int16, revents: Int16) {
        (self.fd, self.events, self.revents) = (fd, events, revents)
    }
}

public let CLOCK_MONOTONIC = clockid_t()
public let CLOCK_REALTIME = clockid_t()
public let ENOENT: Int32 = 2
public let EINTR: Int32 = 4
public let O_RDONLY: Int32 = 0
public let O_WRONLY: Int32 = 1
public let O_NONBLOCK: Int32 = 4
public let O_APPEND: Int32 = 8
public let O_CREAT: Int32 = 0x200
public let O_TRUNC: Int32 = 0x400
public let O_CLOEXEC: Int32 = 0x100_0000
public let F_SETFD: Int32 = 2
public let F_GETFL: Int32 = 3
public let F_SETFL: Int32 = 4
public let FD_CLOEXEC: Int32 = 1
public let POLLIN: Int32 = 1
public var errno: Int32 { 0 }

@discardableResult public func clock_gettime(_: clockid_t, _: UnsafeMutablePointer<timespec>!) -> Int32 { 0 }
@discardableResult public func close(_: Int32) -> Int32 { 0 }
@discardableResult public func fcntl(_: Int32, _: Int32) -> Int32 { 0 }
@discardableResult public func fcntl(_: Int32, _: Int32, _: Int32) -> Int32 { 0 }
@discardableResult public func fsync(_: Int32) -> Int32 { 0 }
@discardableResult public func open(_: UnsafePointer<CChar>, _: Int32) -> Int32 { 0 }
@discardableResult public func open(_: UnsafePointer<CChar>, _: Int32, _: mode_t) -> Int32 { 0 }
@discardableResult public func pipe(_: UnsafeMutablePointer<Int32>!) -> Int32 { 0 }
@discardableResult public func poll(_: UnsafeMutablePointer<pollfd>!, _: nfds_t, _: Int32) -> Int32 { 0 }
@discardableResult public func read(_: Int32, _: UnsafeMutableRawPointer!, _: Int) -> Int { 0 }
public struct DIR { init() {} }
public struct dirent {
    /// The real array has 1,024 elements.
    public var d_name: (CChar, CChar)
}
public func opendir(_: UnsafePointer<CChar>!) -> UnsafeMutablePointer<DIR>! { nil }
public func readdir(_: UnsafeMutablePointer<DIR>!) -> UnsafeMutablePointer<dirent>! { nil }
@discardableResult public func closedir(_: UnsafeMutablePointer<DIR>!) -> Int32 { 0 }
@discardableResult public func rename(_: UnsafePointer<CChar>!, _: UnsafePointer<CChar>!) -> Int32 { 0 }
@discardableResult public func strerror(_: Int32) -> UnsafeMutablePointer<CChar>! { nil }
@discardableResult public func unlink(_: UnsafePointer<CChar>!) -> Int32 { 0 }
@discardableResult public func write(_: Int32, _: UnsafeRawPointer!, _: Int) -> Int { 0 }

@discardableResult public func pthread_cond_broadcast(_: UnsafeMutablePointer<pthread_cond_t>) -> Int32 { 0 }
@discardableResult public func pthread_cond_destroy(_: UnsafeMutablePointer<pthread_cond_t>) -> Int32 { 0 }
@discardableResult public func pthread_cond_init(
    _: UnsafeMutablePointer<pthread_cond_t>, _: UnsafePointer<pthread_condattr_t>?
) -> Int32 { 0 }
@discardableResult public func pthread_cond_timedwait(
    _: UnsafeMutablePointer<pthread_cond_t>, _: UnsafeMutablePointer<pthread_mutex_t>, _: UnsafePointer<timespec>
) -> Int32 { 0 }
@discardableResult public func pthread_cond_wait(
    _: UnsafeMutablePointer<pthread_cond_t>, _: UnsafeMutablePointer<pthread_mutex_t>
) -> Int32 { 0 }
@discardableResult public func pthread_create(
    _: UnsafeMutablePointer<pthread_t?>!, _: UnsafePointer<pthread_attr_t>?,
    _: @convention(c) (UnsafeMutableRawPointer) -> UnsafeMutableRawPointer?, _: UnsafeMutableRawPointer?
) -> Int32 { 0 }
@discardableResult public func pthread_detach(_: pthread_t) -> Int32 { 0 }
@discardableResult public func pthread_mutex_destroy(_: UnsafeMutablePointer<pthread_mutex_t>) -> Int32 { 0 }
@discardableResult public func pthread_mutex_init(
    _: UnsafeMutablePointer<pthread_mutex_t>, _: UnsafePointer<pthread_mutexattr_t>?
) -> Int32 { 0 }
@discardableResult public func pthread_mutex_lock(_: UnsafeMutablePointer<pthread_mutex_t>) -> Int32 { 0 }
@discardableResult public func pthread_mutex_unlock(_: UnsafeMutablePointer<pthread_mutex_t>) -> Int32 { 0 }
public func sysctlbyname(
    _: UnsafePointer<CChar>?, _: UnsafeMutableRawPointer?, _: UnsafeMutablePointer<Int>?, _: UnsafeMutableRawPointer?,
    _: Int
) -> Int32 { 0 }
