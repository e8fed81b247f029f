internal import Wire

struct RequestModel {
    private var answers: [Int: MessageID] = [:]
    /// Whether the store has dropped rows of requests, which it may do after their retention.
    private(set) var areForgotten = false

    mutating func forget() { areForgotten = true }

    /// - Returns: false if another message answered the request before.
    mutating func take(_ message: MessageID, of request: Int) -> Bool {
        let known = answers.updateValue(message, forKey: request)
        return known == nil || known == message
    }
}
