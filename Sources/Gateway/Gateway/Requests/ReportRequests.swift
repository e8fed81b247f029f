internal import Delivery
internal import Wire

extension TaskTotalsQuery: PartitionRequest {
    static let number: UInt8 = 38
    var busy: Found<TaskTotals> { .unreadable }
    func isValid(in share: LoopShare) -> Bool { share.isSame(as: self.share) }
    static func isValid(_ answer: Found<TaskTotals>) -> Bool { answer.value?.isValid ?? true }
}

extension DayQuery: PartitionRequest {
    static let number: UInt8 = 39
    func isValid(in share: LoopShare) -> Bool { true }
    static func isValid(_ answer: DayTotals?) -> Bool { answer?.messages.isValid ?? true }
}

extension FoldableQuery: PartitionRequest {
    static let number: UInt8 = 40
    func isValid(in share: LoopShare) -> Bool { true }
}

extension RemoveCounters: PartitionRequest {
    static let number: UInt8 = 41
    func isValid(in share: LoopShare) -> Bool { share.isSame(as: self.share) }
}

extension OnlineQuery: PartitionRequest {
    static let number: UInt8 = 42
    func isValid(in share: LoopShare) -> Bool { true }
}

extension TaskTotals {
    fileprivate var isValid: Bool { finals.count == FinalState.allCases.count }
}
