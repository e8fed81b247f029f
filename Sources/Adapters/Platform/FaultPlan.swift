// All calls on files and folders pass through here, so that a test can make one fail. In a release build, the functions `call`
// and `transfer` contain the system calls only.

internal import Glibc
internal import Synchronization

#if DEBUG
/// A test's plan to make the n-th call on files below a folder fail; plans of different folders are independent.
package final class FaultPlan: Sendable {
    package enum Kind: Sendable, Equatable {
        /// The call is skipped and fails with this `errno`.
        case error(Int32)
        /// A write or read transfers half of its bytes; other calls are not affected.
        case short
    }
    package enum Extent: Sendable { case once, fromThereOn }

    private struct State {
        var callCount = 0
        var hits: [String] = []
    }

    private static let plans = Lock<[FaultPlan]>([])
    private static let planCount = Atomic<Int>(0)

    private let folder: String
    private let kind: Kind
    private let number: Int
    private let extent: Extent
    private let isCounted: @Sendable (String) -> Bool
    private let state = Lock(State())

    /// Activates the plan.
    ///
    /// - Parameters:
    ///   - folder: the folder whose calls are counted, including calls on the folder itself.
    ///   - kind: the fault.
    ///   - number: the number of the failing call, from 1.
    ///   - extent: whether only this call fails, or this one and all later ones.
    ///   - isCounted: returns whether a call with this name is counted.
    package init(
        folder: String, kind: Kind, at number: Int, extent: Extent,
        isCounted: @escaping @Sendable (String) -> Bool = { _ in true }
    ) {
        (self.folder, self.kind, self.number) = (folder, kind, number)
        (self.extent, self.isCounted) = (extent, isCounted)
        Self.plans.withLock { $0.append(self) }
        Self.planCount.add(1, ordering: .sequentiallyConsistent)
    }

    package func remove() {
        let wasThere = Self.plans.withLock { plans in
            let count = plans.count
            plans.removeAll { $0 === self }
            return plans.count < count
        }
        if wasThere { Self.planCount.subtract(1, ordering: .sequentiallyConsistent) }
    }

    package var callCount: Int { state.withLock { $0.callCount } }
    /// The failed calls with their paths, at most 64.
    package var hits: [String] { state.withLock { $0.hits } }

    private func next(_ call: String, _ path: String) -> Kind? {
        guard isCounted(call) else { return nil }
        return state.withLock { state in
            state.callCount += 1
            guard state.callCount == number || extent == .fromThereOn && state.callCount > number else {
                return nil
            }
            if kind == .short, call != "write", call != "read" { return nil }
            if state.hits.count < 64 { state.hits.append("\(call) \(path)") }
            return kind
        }
    }

    /// Counts this call and returns its planned fault.
    package static func fault(of call: StaticString, on path: String) -> Kind? {
        guard planCount.load(ordering: .relaxed) > 0 else { return nil }
        let plans = plans.withLock { $0.filter { path == $0.folder || path.hasPrefix($0.folder + "/") } }
        var fault: Kind?
        for plan in plans { fault = plan.next("\(call)", path) ?? fault }
        return fault
    }
}
#endif

/// Runs a call that returns -1 and sets `errno` on failure; repeats it after an interruption by a signal.
@inline(__always)
func call(_ name: StaticString, _ path: String, _ body: () -> CInt) -> CInt {
    while true {
        #if DEBUG
        if case .error(let code)? = FaultPlan.fault(of: name, on: path) {
            errno = code
        } else {
            let result = body()
            if result >= 0 { return result }
        }
        #else
        let result = body()
        if result >= 0 { return result }
        #endif
        if errno != EINTR { return -1 }
    }
}

/// Runs a call that transfers up to `byteCount` bytes, and repeats it after a signal; returns the number of bytes or -1.
@inline(__always)
func transfer(_ name: StaticString, _ path: String, _ byteCount: Int, _ body: (Int) -> Int) -> Int {
    while true {
        #if DEBUG
        switch FaultPlan.fault(of: name, on: path) {
        case .error(let code)?: errno = code
        case .short?: return body(max(1, byteCount / 2))
        case nil:
            let result = body(byteCount)
            if result >= 0 { return result }
        }
        #else
        let result = body(byteCount)
        if result >= 0 { return result }
        #endif
        if errno != EINTR { return -1 }
    }
}
