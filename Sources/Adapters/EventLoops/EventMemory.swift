internal import CLibevent
internal import Glibc
internal import Platform

/// A custom allocator for libevent's smallest allocations.
///
/// The record of 16 bytes that libevent allocates per descriptor would take 32 bytes with malloc. Such allocations come from a
/// reserved region without headers. All others use malloc.
enum EventMemory {
    private static let cellByteCount = 16
    /// The reserved address space, enough for 16 million descriptors; only used pages take memory.
    private static let regionByteCount = 256 << 20

    private struct Cells {
        var free: UnsafeMutableRawPointer?
        var usedByteCount = 0
    }

    private static let cells = Lock(Cells())
    /// The region's address, or 0 if no address space was available; all allocations then use malloc.
    private static let region: UInt = {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        let mapped = mmap(nil, regionByteCount, PROT_READ | PROT_WRITE, flags, -1, 0)
        return mapped == MAP_FAILED ? 0 : UInt(bitPattern: mapped)
    }()

    /// Installs the allocator on first access, which must precede libevent's first allocation.
    static let isInstalled: Bool = {
        guard region != 0 else { return false }
        event_set_mem_functions(
            { EventMemory.allocate($0) }, { EventMemory.reallocate($0, $1) }, { EventMemory.release($0) })
        return true
    }()

    static func isCell(_ piece: UnsafeMutableRawPointer) -> Bool {
        UInt(bitPattern: piece) &- region < UInt(regionByteCount)
    }

    static func allocate(_ byteCount: Int) -> UnsafeMutableRawPointer? {
        guard byteCount > 0, byteCount <= cellByteCount else { return malloc(byteCount) }
        let cell = cells.withLock { cells -> UInt in
            if let free = cells.free {
                cells.free = free.load(as: UnsafeMutableRawPointer?.self)
                return UInt(bitPattern: free)
            }
            guard cells.usedByteCount < regionByteCount else { return 0 }
            defer { cells.usedByteCount += cellByteCount }
            return region + UInt(cells.usedByteCount)
        }
        return cell == 0 ? malloc(byteCount) : UnsafeMutableRawPointer(bitPattern: cell)
    }

    static func reallocate(_ piece: UnsafeMutableRawPointer?, _ byteCount: Int) -> UnsafeMutableRawPointer? {
        guard let piece else { return allocate(byteCount) }
        guard isCell(piece) else { return realloc(piece, byteCount) }
        guard byteCount > cellByteCount else { return piece }
        guard let wider = malloc(byteCount) else { return nil }
        wider.copyMemory(from: piece, byteCount: cellByteCount)
        release(piece)
        return wider
    }

    static func release(_ piece: UnsafeMutableRawPointer?) {
        guard let piece else { return }
        guard isCell(piece) else { return free(piece) }
        let address = UInt(bitPattern: piece)
        cells.withLock { cells in
            guard let cell = UnsafeMutableRawPointer(bitPattern: address) else { return }
            cell.storeBytes(of: cells.free, as: UnsafeMutableRawPointer?.self)
            cells.free = cell
        }
    }
}
