internal import Delivery
internal import Wire

/// A command about a feed; the answer follows once its writes are durable, `nil` if the feed is busy.
extension FeedCommand: PartitionRequest {
    static let number: UInt8 = 54

    func isValid(in share: LoopShare) -> Bool { share.contains(feed.home) && isInBounds }

    static func isValid(_ answer: FeedAnswer?) -> Bool {
        if case .page(let page)? = answer { page.isValid } else { true }
    }

    private var isInBounds: Bool {
        switch self {
        case .upstream(let message): message.payload.count <= MessageBounds.payloadByteCount
        case .append(_, let items, let lost):
            items.count <= FeedBounds.pageItems && lost < 1 << 48
                && items.allSatisfy {
                    LinkCodec.isTime($0.at) && $0.payload.count <= MessageBounds.payloadByteCount
                }
        case .read(let read):
            1...FeedBounds.pageItems ~= read.limit && 0...FeedBounds.waitMilliseconds ~= read.waitMilliseconds
        case .acknowledge, .state: true
        }
    }
}

extension FeedPage {
    /// Whether the page's numbers cannot overflow and its size is within the limit.
    fileprivate var isValid: Bool {
        1..<(1 << 62) ~= first && missed < first && items.count <= FeedBounds.pageItems
            && items.allSatisfy { $0.payload.count <= MessageBounds.payloadByteCount }
    }
}
