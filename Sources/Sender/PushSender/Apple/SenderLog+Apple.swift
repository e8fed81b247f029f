internal import APNs

extension SenderLog {
    func credentialRefused(_ lane: String, _ answer: Answer, topic: String?, clock: ClockDifference?) {
        let advice =
            Reason(rawValue: answer.reason).map { "\($0.advice)" } ?? "see Apple's documentation of this reason"
        let clock = clock.flatMap { $0.isTooLarge ? "; \($0)" : nil } ?? ""
        write("credentialRefused", "\(lane)\(topic.map { ", topic \($0)" } ?? ""): \(answer.name): \(advice)\(clock)")
    }
}
