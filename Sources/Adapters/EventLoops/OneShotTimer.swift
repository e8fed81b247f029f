internal import CLibevent
internal import Platform

/// A loop's timer for delays below a millisecond; firing starts an ordinary turn.
final class OneShotTimer {
    private let timer: PreciseTimer
    private var event: UnsafeMutablePointer<event>?
    private var isUnderWay = false

    /// Fails without a descriptor or memory.
    init?(on base: OpaquePointer) {
        do throws(SystemError) { timer = try PreciseTimer() } catch { return nil }
        let context = Unmanaged.passUnretained(self).toOpaque()
        event = event_new(
            base, timer.descriptor, Int16(EV_READ | EV_PERSIST),
            { _, _, context in
                guard let context else { return }
                Unmanaged<OneShotTimer>.fromOpaque(context).takeUnretainedValue().end()
            }, context)
        guard let event, event_add(event, nil) == 0 else { return nil }
    }

    deinit { if let event { event_free(event) } }

    func begin(_ nanoseconds: Int64) {
        guard !isUnderWay else { return }
        isUnderWay = true
        timer.set(nanoseconds)
    }

    private func end() {
        timer.clear()
        isUnderWay = false
    }
}
