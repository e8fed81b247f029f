// The admin listener's requests about feeds, and their answers: an app's upstream messages and its events.

package import Delivery
internal import JSON
internal import TextForms
internal import Wire

package enum FeedRequest: Sendable {
    case read(FeedRead)
    case acknowledge(FeedName, upTo: UInt64)
}

extension FeedKind {
    package var name: String { "\(self)" }

    /// The permission that reading the feed needs.
    fileprivate var permission: Credential.Permission {
        switch self {
        case .upstream: .upstream
        case .events: .events
        }
    }
}

extension AdminAPI {
    func feedRead(
        _ kind: FeedKind, _ request: APIRequest, _ path: RequestPath
    ) throws(AdminFault) -> FeedRequest {
        let app = try feedApp(kind, request, path)
        let after = try queryValue("after", of: request.target).map { text throws(AdminFault) in try cursor(text) }
        let limit = try number("max", request, 1...FeedBounds.pageItems) ?? 100
        let wait = try number("waitSeconds", request, 0...Int(FeedBounds.waitMilliseconds / 1_000)) ?? 0
        return .read(
            FeedRead(
                FeedName(app.key, kind), after: after, limit: limit, waitMilliseconds: Int64(wait) * 1_000))
    }

    func feedAcknowledgement(
        _ kind: FeedKind, _ request: APIRequest, _ path: RequestPath
    ) throws(AdminFault) -> FeedRequest {
        let app = try feedApp(kind, request, path)
        let fields = try StrictObject(try body(request, kind.permission).value, known: ["cursor"])
        guard let text = try fields.text("cursor") else { throw .invalid("cursor is missing: the one of a page") }
        return .acknowledge(FeedName(app.key, kind), upTo: try cursor(text))
    }

    /// Returns the path's app, if the credential may read its feed and the app has the feed.
    private func feedApp(
        _ kind: FeedKind, _ request: APIRequest, _ path: RequestPath
    ) throws(AdminFault) -> App {
        let app = try app(path, request, for: kind.permission).app
        guard kind == .upstream ? app.takesUpstream : app.hasEvents else {
            throw AdminFault(
                .conflict, "the app has no \(kind.name): set apps[].\(kind.name) in the configuration")
        }
        return app
    }

    private func cursor(_ text: String) throws(AdminFault) -> UInt64 {
        guard text.utf8.allSatisfy(\.isDigit), let number = UInt64(text) else {
            throw .invalid("a cursor is the number, as a string, that a page gave")
        }
        return number
    }

    private func number(
        _ name: String, _ request: APIRequest, _ range: ClosedRange<Int>
    ) throws(AdminFault) -> Int? {
        guard let text = queryValue(name, of: request.target) else { return nil }
        guard let number = Int(text), range.contains(number) else {
            throw .invalid("\(name) is an integer from \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }
}

package enum FeedAnswers {
    private static let unavailable = APIResponse.adminUnavailable("the app's feed cannot be read now, retry")

    private static func beyond(_ last: UInt64) -> APIResponse {
        AdminFault(
            .conflict,
            "the cursor is beyond the last item, \(last): the store is an older one; begin again without a cursor"
        ).response
    }

    private static let otherHistory = AdminFault(
        .conflict,
        "the cursor is of another history of the store, which was restored, imported or copied since: its items are others; "
            + "begin again without a cursor"
    ).response

    package static func page(_ answer: FeedAnswer?, of feed: FeedName, registry: AppRegistry) -> APIResponse {
        switch answer {
        case .page(let page): APIResponse(status: 200, body: body(page, of: feed, registry: registry))
        case .beyond(let last): beyond(last)
        case .otherHistory: otherHistory
        default: unavailable
        }
    }

    package static func acknowledged(_ answer: FeedAnswer?) -> APIResponse {
        switch answer {
        case .acknowledged(let state):
            return .object(["acked": String(state.acked), "last": String(state.last)])
        case .beyond(let last): return beyond(last)
        case .otherHistory: return otherHistory
        default: return unavailable
        }
    }

    /// Writes a page for the API or the webhook; only the webhook sets `type`.
    package static func body(
        _ page: FeedPage, of feed: FeedName, registry: AppRegistry, type: StaticString? = nil
    ) -> [UInt8] {
        let capacity = page.items.reduce(256) { $0 + 256 + 2 * ($1.payload.count + $1.customCallback.count) }
        var writer = JSONWriter(capacity: capacity)
        writer.object { writer in
            if let type { writer.member("type", type) }
            writer.member("appId", registry.appID(of: feed.app))
            writer.array("items") { writer in
                if page.missed > 0 {
                    writer.object { writer in
                        writer.member("type", "gap")
                        writer.member("count", page.missed)
                        writer.member("cursor", String(page.first - 1))
                    }
                }
                for (index, item) in page.items.enumerated() {
                    write(item, cursor: page.first + UInt64(index), to: &writer)
                }
            }
            writer.member("cursor", String(page.next))
            writer.member("acked", String(page.state.acked))
            writer.member("more", page.next < page.state.last)
        }
        return writer.bytes
    }

    private static func write(_ item: FeedItem, cursor: UInt64, to writer: inout JSONWriter) {
        writer.object { writer in
            writer.member("cursor", String(cursor))
            writer.member("type", "\(item.kind)")
            writer.member("time", item.at)
            writer.member("cid", item.cid.description)
            if !item.message.isNone { writer.member("msgId", item.message.description) }
            if !item.task.isNone { writer.member("taskId", item.task.text) }
            if item.kind == .upstream {
                writer.member("request", item.request)
                // Valid UTF-8 is written as text, so that it is readable. Other bytes are written as Base64 under another key.
                if let text = String(validating: item.payload, as: UTF8.self) {
                    writer.member("payload", text)
                } else {
                    writer.member("payloadBase64", Base64.encode(item.payload, .standard))
                }
                return
            }
            switch item.detail {
            case .none: break
            case .channel(let channel): if let channel { writer.member("channel", channel.name) }
            case .ofAlert(let isAlert, let channel):
                writer.member("alert", isAlert)
                if let channel { writer.member("channel", channel.name) }
            case .action(let number): writer.member("action", number)
            }
            if !item.customCallback.isEmpty {
                writer.member("customCallback", String(decoding: item.customCallback, as: UTF8.self))
            }
            guard !item.payload.isEmpty else { return }
            let name: StaticString = item.kind == .alerted ? "vendorId" : "reason"
            writer.member(name, String(decoding: item.payload, as: UTF8.self))
        }
    }
}
