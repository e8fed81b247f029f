internal import CSystem

/// Asks the processor for memory that will be used soon, while something else is done; any address will do.
///
/// With many thousands of connections next to nothing of one is in a cache when its turn comes: memory that is fetched
/// while a system call runs costs nothing.
package func prefetch(_ address: UnsafeRawPointer, byteCount: Int = 1) {
    var offset = 0
    while offset < byteCount {
        longwire_prefetch(address + offset)
        offset += 64
    }
}
