internal import Configuration
internal import HTTPClient

/// One attempt to post a batch to the hook's receiver; confined to the dispatcher's thread.
struct HookTransfer {
    enum Result: Equatable {
        case answer(HookResponse)
        case failure(HookFailure)
    }

    let delivery: HookDelivery
    let attempt: Int
    /// Of an earlier attempt.
    let mayHaveArrived: Bool
    /// The dispatcher's count of configurations when it began.
    let edition: Int
    let transfer: HTTPTransfer

    /// Starts the request; `nil` when there is no memory or an option is refused.
    init?(
        _ delivery: HookDelivery, attempt: Int, headers: [(name: String, value: String)],
        configuration: GatewayConfiguration.Hook, mayHaveArrived: Bool, edition: Int, in transfers: HTTPTransfers
    ) {
        let type = (name: "Content-Type", value: "application/json; charset=utf-8")
        var call = HTTPCall(
            configuration.url.text, headers: [type] + headers, body: delivery.body, userAgent: "longwire",
            timeoutMilliseconds: Int(configuration.timeoutSeconds * 1_000))
        call.connectMilliseconds = Int(HookLimits.connectTimeout)
        call.answerByteLimit = HookLimits.responseByteCount
        call.trust.authoritiesFile = configuration.authoritiesFile
        guard let transfer = HTTPTransfer(call, in: transfers) else { return nil }
        (self.delivery, self.attempt, self.mayHaveArrived) = (delivery, attempt, mayHaveArrived)
        (self.edition, self.transfer) = (edition, transfer)
    }
}

extension HookFailure {
    /// The hook's own word for what went wrong.
    init(_ failure: HTTPCallFailure) {
        switch failure.kind {
        case .resolve: self = .resolve
        case .connect: self = .connect
        case .tls, .certificate, .ownCertificate: self = .tls
        case .timeout: self = .timeout
        case .tooLarge: self = .tooLarge
        case .notLoopback: self = .notLoopback
        case .cancelled, .cut, .other: self = .other
        }
    }
}
