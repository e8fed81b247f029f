internal import Wire

/// Which message each request was answered with.
struct RequestModel {
    private var answers: [Int: MessageID] = [:]
    /// The store has dropped rows of requests, as it may after their time.
    private(set) var areForgotten = false

    mutating func forget() { areForgotten = true }

    /// - Returns: false when another message has answered the request before.
    mutating func take(_ message: MessageID, of request: Int) -> Bool {
        let known = answers.updateValue(message, forKey: request)
        return known == nil || known == message
    }
}
