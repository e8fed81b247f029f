/// The address of a value in a table, for reads and writes without a copy.
///
/// A place must not outlive its table. `Place` is `@safe` because a table's memory consists of chunks of one type, which never
/// move and are freed only with the table. A slab verifies that a slot is occupied before it returns a place.
///
/// A place whose value was removed holds stale bytes or another value of the same type. The read gives a wrong result but touches
/// no foreign memory. Such a read is unsafe only for values with references. `Slab.remove` therefore overwrites them in a debug
/// build, so that the simulation crashes at the first such read.
///
/// `value` is a property, not `@dynamicMemberLookup`: key paths reach no mutating method and cost a call in a debug build.
@safe public struct Place<Element: ~Copyable>: BitwiseCopyable {
    @usableFromInline let pointer: UnsafeMutablePointer<Element>

    /// Creates a place from memory that must outlive it.
    @unsafe @_transparent public init(_ pointer: UnsafeMutablePointer<Element>) { unsafe self.pointer = pointer }

    public var value: Element {
        @_transparent unsafeAddress { unsafe UnsafePointer(pointer) }
        @_transparent nonmutating unsafeMutableAddress { unsafe pointer }
    }

    /// The value's bytes, for prefetching.
    @unsafe public var bytes: UnsafeRawBufferPointer {
        unsafe UnsafeRawBufferPointer(start: pointer, count: MemoryLayout<Element>.size)
    }
}

extension Place: Equatable where Element: ~Copyable {
    @_transparent public static func == (left: Place, right: Place) -> Bool { unsafe left.pointer == right.pointer }
}

extension Place {
    @_transparent public func update(from other: Place) { unsafe pointer.update(from: other.pointer, count: 1) }
}

extension Place where Element: ~Copyable {
    /// Allocates a place for one value; `value` may store the place but must not use it.
    public static func make(_ value: (Place) -> Element) -> Place {
        let place = unsafe Place(UnsafeMutablePointer<Element>.allocate(capacity: 1))
        unsafe place.pointer.initialize(to: value(place))
        return place
    }

    /// Destroys a value that `make` allocated; the place is invalid afterwards.
    @unsafe public func destroy() {
        unsafe pointer.deinitialize(count: 1)
        unsafe pointer.deallocate()
    }
}

/// Places for trivial values, allocated in chunks and freed together.
@safe public struct PlaceChunks<Element: BitwiseCopyable>: ~Copyable {
    // An array, not a pointer, because of the compiler defect described in `PagedArray`.
    private var chunks: [UnsafeMutablePointer<Element>] = []

    public init() {}

    deinit { for chunk in chunks { chunk.deallocate() } }

    /// Allocates `count` places with this value and passes each to `take`, the last one first.
    public mutating func make(_ count: Int, of value: Element, _ take: (Place<Element>) -> Void) {
        let chunk = UnsafeMutablePointer<Element>.allocate(capacity: count)
        unsafe chunk.initialize(repeating: value, count: count)
        unsafe chunks.append(chunk)
        for index in (0..<count).reversed() { take(unsafe Place(chunk + index)) }
    }
}
