internal import Configuration
internal import HTTPClient

/// One attempt to post a batch to the hook's receiver; confined to the dispatcher's thread.
struct HookTransfer {
    enum Result: Equatable {
        case answer(HookResponse)
        /// `cause` is the transfer's own text, without the URL.
        case failure(HookFailure, cause: String)
    }

    let delivery: HookDelivery
    let attempt: Int
    /// Whether an earlier attempt may have reached the receiver.
    let mayHaveArrived: Bool
    /// The dispatcher's configuration number when the attempt began.
    let edition: Int
    let transfer: HTTPTransfer

    /// Starts the request; returns `nil` if memory is exhausted or curl refuses an option.
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
    init(_ failure: HTTPCallFailure) {
        switch failure.kind {
        case .resolve: self = .resolve
        case .connect: self = .connect
        case .tls, .ownCertificate: self = .tls
        case .certificate: self = .certificate
        case .timeout: self = .timeout
        case .tooLarge: self = .tooLarge
        case .notLoopback: self = .notLoopback
        case .cancelled, .cut, .forbiddenAddress, .other: self = .other
        }
    }
}
