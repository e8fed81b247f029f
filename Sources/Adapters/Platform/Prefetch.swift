internal import CSystem

/// Loads memory into the CPU's cache; any address is allowed.
///
/// A connection's data is rarely cached. A prefetch that runs during a system call costs no time.
package func prefetch(_ address: UnsafeRawPointer, byteCount: Int = 1) {
    var offset = 0
    while offset < byteCount {
        longwire_prefetch(address + offset)
        offset += 64
    }
}
