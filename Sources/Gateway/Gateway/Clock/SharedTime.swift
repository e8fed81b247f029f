package import Delivery
internal import Platform

/// The gateway time for threads other than loops; unknown until the store has returned the last run's time.
package final class SharedTime: Sendable {
    private let mapping = Lock<ClockMapping?>(nil)

    package init() {}

    package func set(_ mapping: ClockMapping) { self.mapping.withLock { $0 = mapping } }

    package var now: GatewayTime? { mapping.withLock { $0 }?.time(atBoot: ClockReader.boot()) }
}
