package import Delivery
internal import Platform

/// Gateway time for threads that are no loop; unknown until the store has told where the last run ended.
package final class SharedTime: Sendable {
    private let mapping = Lock<ClockMapping?>(nil)

    package init() {}

    /// The control thread's newest mapping.
    package func set(_ mapping: ClockMapping) { self.mapping.withLock { $0 = mapping } }

    package var now: GatewayTime? { mapping.withLock { $0 }?.time(atBoot: ClockReader.boot()) }
}
