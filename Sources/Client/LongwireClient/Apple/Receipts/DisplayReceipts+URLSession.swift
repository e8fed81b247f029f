// The HTTP call of `DisplayReceipts` for a service extension, which exists only on Apple's systems. Type-checked against stubs
// (Tests/Checks/check-client.sh). A Linux program passes its own HTTP client to `report(_:by:)`.
#if canImport(Network)
internal import Foundation

extension DisplayReceipts {
    /// Sends the reports with the system's HTTP client and trust settings.
    ///
    /// A service extension has about 30 s. Await this call before you pass the notification's content to the system.
    ///
    /// - Parameters:
    ///   - reports: 1 to 32 reports about this device's messages.
    ///   - timeoutSeconds: the request timeout.
    /// - Returns: the result of each report, in order.
    /// - Throws: as `report(_:by:)`, and `unreachable` without an HTTP response.
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
