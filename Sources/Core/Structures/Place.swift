/// Where a value of a table is: it is read and changed there, without a copy.
///
/// Its holder keeps it for the work at hand, never longer than the table. Why it is `@safe`: a table's memory comes in
/// chunks of one type, which never move and are freed only with the table. A slab checks that a slot is in use when it
/// gives its place. A place whose value was removed holds that value's bytes, or another value of the same type: a wrong
/// answer, but no foreign memory. Only of a value with references would such a read be unsafe. So a debug build overwrites
/// those when they are removed (`Slab.remove`), and the simulation would end at the first such read.
///
/// `value` is a property, not `@dynamicMemberLookup`: key paths reach no mutating method and cost a call in a debug build.
@safe public struct Place<Element: ~Copyable>: BitwiseCopyable {
    @usableFromInline let pointer: UnsafeMutablePointer<Element>

    /// A place in memory that the caller keeps as long as the place is used.
    @unsafe @_transparent public init(_ pointer: UnsafeMutablePointer<Element>) { unsafe self.pointer = pointer }

    /// The value, in place.
    public var value: Element {
        @_transparent unsafeAddress { unsafe UnsafePointer(pointer) }
        @_transparent nonmutating unsafeMutableAddress { unsafe pointer }
    }

    /// Its bytes, for prefetching.
    @unsafe public var bytes: UnsafeRawBufferPointer {
        unsafe UnsafeRawBufferPointer(start: pointer, count: MemoryLayout<Element>.size)
    }
}

extension Place: Equatable where Element: ~Copyable {
    @_transparent public static func == (left: Place, right: Place) -> Bool { unsafe left.pointer == right.pointer }
}

extension Place {
    /// Replaces the value by a copy of another place's.
    @_transparent public func update(from other: Place) { unsafe pointer.update(from: other.pointer, count: 1) }
}

extension Place where Element: ~Copyable {
    /// A place of its own for a value that others name by it; `value` may keep the place, but not use it yet.
    public static func make(_ value: (Place) -> Element) -> Place {
        let place = unsafe Place(UnsafeMutablePointer<Element>.allocate(capacity: 1))
        unsafe place.pointer.initialize(to: value(place))
        return place
    }

    /// Ends a value that `make` gave a place; nothing may use the place any more.
    @unsafe public func destroy() {
        unsafe pointer.deinitialize(count: 1)
        unsafe pointer.deallocate()
    }
}

/// Places for trivial values, made a chunk at a time and freed together.
@safe public struct PlaceChunks<Element: BitwiseCopyable>: ~Copyable {
    // An array, not a pointer: see `PagedArray`.
    private var chunks: [UnsafeMutablePointer<Element>] = []

    public init() {}

    deinit { for chunk in chunks { chunk.deallocate() } }

    /// Makes `count` places with this value and hands out each, the last one first.
    public mutating func make(_ count: Int, of value: Element, _ take: (Place<Element>) -> Void) {
        let chunk = UnsafeMutablePointer<Element>.allocate(capacity: count)
        unsafe chunk.initialize(repeating: value, count: count)
        unsafe chunks.append(chunk)
        for index in (0..<count).reversed() { take(unsafe Place(chunk + index)) }
    }
}
