internal import CSystem

/// Prefetches memory at any address, which is free during a system call; a connection's data is rarely cached.
package func prefetch(_ address: UnsafeRawPointer, byteCount: Int = 1) {
    var offset = 0
    while offset < byteCount {
        longwire_prefetch(address + offset)
        offset += 64
    }
}
