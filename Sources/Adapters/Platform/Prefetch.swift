internal import CSystem

/// Prefetches memory into the processor's cache.
///
/// Any address is allowed. With many thousands of connections, the data of a connection is rarely cached when it is needed. A
/// prefetch during a system call costs no time.
package func prefetch(_ address: UnsafeRawPointer, byteCount: Int = 1) {
    var offset = 0
    while offset < byteCount {
        longwire_prefetch(address + offset)
        offset += 64
    }
}
