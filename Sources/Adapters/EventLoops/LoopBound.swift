/// Carries a value that is not `Sendable` through a `@Sendable` closure, back to the loop that owns it.
///
/// The last copy may die on another thread, so a value with a close of its own must be closed on the loop.
package struct LoopBound<Value>: @unchecked Sendable {
    // Sound because the initialiser and the only accessor both trap off the loop.
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
