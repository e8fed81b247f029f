/// A wrapper that carries a non-`Sendable` value through a `@Sendable` closure back to its loop.
///
/// Another thread may release the last copy, so a value that needs closing must be closed on the loop.
package struct LoopBound<Value>: @unchecked Sendable {
    // Safe: the initializer and the only accessor trap off the loop.
    private let value: Value
    private let loop: EventLoop

    package init(_ value: Value, on loop: EventLoop) {
        loop.preconditionInLoop()
        (self.value, self.loop) = (value, loop)
    }

    package var wrapped: Value {
        loop.preconditionInLoop()
        return value
    }
}
