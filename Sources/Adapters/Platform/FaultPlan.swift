// The one place where calls on files and folders pass, so that a test can have one of them fail. A release build has
// none of it: there the two functions at the end are the calls alone.

internal import Glibc
internal import Synchronization

#if DEBUG
/// Makes the n-th call on files below a folder fail, in whichever thread it is made; for tests.
///
/// Plans of several folders do not see each other, so tests may run at the same time.
package final class FaultPlan: Sendable {
    package enum Kind: Sendable, Equatable {
        /// The call does nothing and fails with this `errno`.
        case error(Int32)
        /// A write or read moves half of its bytes; every other call is left alone.
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

    /// Takes effect at once.
    ///
    /// - Parameters:
    ///   - folder: the folder whose calls are counted, its own name included.
    ///   - kind: what happens.
    ///   - number: which call it happens to, from 1.
    ///   - extent: to this call alone, or to all from it on.
    ///   - isCounted: which calls count, by name.
    package init(
        folder: String, kind: Kind, at number: Int, extent: Extent,
        isCounted: @escaping @Sendable (String) -> Bool = { _ in true }
    ) {
        (self.folder, self.kind, self.number) = (folder, kind, number)
        (self.extent, self.isCounted) = (extent, isCounted)
        Self.plans.withLock { $0.append(self) }
        Self.planCount.add(1, ordering: .sequentiallyConsistent)
    }

    /// Ends the plan.
    package func remove() {
        let wasThere = Self.plans.withLock { plans in
            let count = plans.count
            plans.removeAll { $0 === self }
            return plans.count < count
        }
        if wasThere { Self.planCount.subtract(1, ordering: .sequentiallyConsistent) }
    }

    /// Calls seen so far.
    package var callCount: Int { state.withLock { $0.callCount } }
    /// The calls that were made to fail, each with its path.
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

    /// What is planned for this call, which counts from now on.
    package static func fault(of call: StaticString, on path: String) -> Kind? {
        guard planCount.load(ordering: .relaxed) > 0 else { return nil }
        let plans = plans.withLock { $0.filter { path == $0.folder || path.hasPrefix($0.folder + "/") } }
        var fault: Kind?
        for plan in plans { fault = plan.next("\(call)", path) ?? fault }
        return fault
    }
}
#endif

/// Makes a call that answers -1 and sets `errno` when it fails; again when a signal cut it short.
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

/// Makes a call that moves up to `byteCount` bytes and answers how many, or -1; again when a signal cut it short.
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
