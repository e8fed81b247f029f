// The types that the example's app would define itself. Only to check types against.
import Foundation

@MainActor final class Inbox {
    static let shared = Inbox()
    func add(_ payload: [UInt8], id: String) {}
}
@MainActor enum Pages {
    static var areReady: Bool { true }
    static func open(payload: String?, id: String) {}
}
