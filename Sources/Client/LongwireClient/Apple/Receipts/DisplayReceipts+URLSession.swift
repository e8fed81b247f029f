// The part of a service extension that only Apple's systems have: the call itself. Type-checked against stubs
// (Tests/Checks/check-client.sh); a Linux program hands its own HTTP client to `report(_:by:)`.
#if canImport(Network)
internal import Foundation

extension DisplayReceipts {
    /// Sends the reports by the system's HTTP, with the system's trust.
    ///
    /// An extension has about 30 s: call this before you hand the content over, and give up with your own timeout.
    ///
    /// - Returns: what became of each report, in order.
    /// - Throws: as `report(_:by:)`, and `unreachable` when there is no answer.
    public func report(_ reports: [MessageReport], timeoutSeconds: Double = 10) async throws -> [ReceiptResult] {
        try await report(reports) { call in
            guard let url = URL(string: call.url) else {
                throw LongwireClientError(code: .badConfiguration, message: "\(call.url) is no URL")
            }
            var request = URLRequest(url: url)
            request.httpMethod = "POST"
            request.timeoutInterval = timeoutSeconds
            request.httpBody = Data(call.body)
            for (name, value) in call.headers { request.setValue(value, forHTTPHeaderField: name) }
            do {
                let (data, response) = try await URLSession.shared.data(for: request)
                return ReceiptReply(status: (response as? HTTPURLResponse)?.statusCode ?? 0, body: [UInt8](data))
            } catch {
                throw LongwireClientError(code: .unreachable, message: "no answer: \(error)")
            }
        }
    }
}
#endif
