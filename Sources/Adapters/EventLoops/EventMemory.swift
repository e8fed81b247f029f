internal import CLibevent
internal import Glibc
internal import Platform

/// Where libevent's smallest pieces of memory lie.
///
/// For each descriptor libevent keeps a record of 16 bytes that it allocates by itself; the C library would take 32 for it. So
/// such pieces come from one reserved region, without headers; everything else is the C library's as before.
enum EventMemory {
    private static let cellByteCount = 16
    /// Address space, of which only what is used becomes memory: cells for 16 million descriptors.
    private static let regionByteCount = 256 << 20

    private struct Cells {
        var free: UnsafeMutableRawPointer?
        var usedByteCount = 0
    }

    private static let cells = Lock(Cells())
    /// Zero when there was no address space for it: then all is as without this.
    private static let region: UInt = {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        let mapped = mmap(nil, regionByteCount, PROT_READ | PROT_WRITE, flags, -1, 0)
        return mapped == MAP_FAILED ? 0 : UInt(bitPattern: mapped)
    }()

    /// To be asked for before libevent allocates anything; done once.
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
