internal import APNs
internal import Configuration
internal import EventLoops
internal import JSON
internal import Platform
internal import TextForms

/// The commands `longwire-sender channel` and `longwire-sender broadcast`: one request, sent as the sender does.
struct ChannelCommand {
    let configuration: SenderConfiguration
    let wish: ChannelOrder

    /// - Throws: `CommandFailure`, or the reason why the body cannot be read.
    init(_ configuration: SenderConfiguration, _ arguments: SenderArguments) throws {
        self.configuration = configuration
        let channels = arguments.channels
        let topic = arguments.topic ?? ""
        var facts = BodyFacts()
        let call: ChannelRequest.Call
        switch arguments.action {
        case .channel(.create): call = .create(channels.storage)
        case .channel(.list): call = .list
        case .channel(.show): call = .read(channels.channelID)
        case .channel(.delete): call = .delete(channels.channelID)
        default:
            var body = Array((channels.body ?? "").utf8)
            if let file = channels.bodyFile {
                body = try FileText.read(file, limit: ConfigurationLimits.fileByteCount).bytes
            }
            let parser = JSONParser()
            let result: Result<JSONValue, JSONError> = body.withUnsafeBytes { bytes in
                do throws(JSONError) { return .success(try parser.parse(bytes)) } catch { return .failure(error) }
            }
            guard case .success(let value) = result else {
                throw CommandFailure.usage("the body is no JSON")
            }
            facts = BodyFacts(value, isActivity: true)
            call = .broadcast(
                Broadcast(
                    channelID: channels.channelID, expiration: channels.expiration, priority: channels.priority,
                    body: body))
        }
        wish = ChannelOrder(
            appID: channels.appID, arguments.environment ?? .production, ChannelRequest(topic: topic, call: call),
            facts: facts)
    }

    /// - Returns: the text to print, and whether Apple accepted the request.
    func run() throws -> (text: String, isDone: Bool) {
        let loop = try EventLoop(index: 0, name: "channel")
        defer { loop.stop() }
        let (apps, others) = try configuration.openCredentials()
        let sender = AppleSender(
            on: loop, credentials: apps, otherCredentials: others, endpoints: configuration.endpoints,
            limits: configuration.limits, log: SenderLog { _, _ in },
            resolver: { loop.resolve($0, $1) }, results: { _ in })
        let channels = ChannelCalls(of: sender, endpoints: configuration.channelEndpoints)
        var outcome: ChannelOutcome?
        channels.perform(wish.request, appID: wish.appID, wish.environment, facts: wish.facts) { outcome = $0 }
        // `ChannelCalls` always calls back, at the latest after its timeout.
        while outcome == nil {
            loop.step(at: SystemClock.monotonicMilliseconds, isTick: true)
            Pause.milliseconds(2)
        }
        channels.close()
        let report = ChannelReport(wish.request, outcome ?? .unknown(""))
        return (String(decoding: report.body, as: UTF8.self), report.status / 100 == 2)
    }
}
