internal import Delivery
internal import Wire

/// A step of an operation on aliases, tags, blacklist or badge; the answer follows once it is durable.
extension DirectoryCommand: PartitionRequest {
    typealias Answer = DirectoryReply
    static let number: UInt8 = 7
    var busy: DirectoryReply { .failed }

    func isValid(in share: LoopShare) -> Bool {
        guard share.contains(bucket) else { return false }
        switch step {
        case .reserve(let name, _, _), .release(let name, _), .members(let name), .takeToken(let name, _, _):
            return name.bucket == bucket
        case .count(_, let first, let stride): return first == share.index && stride == share.count
        case .setAlias, .clearAlias, .holds, .replaceTags, .addTags, .removeTags, .setBlacklisted, .setBadge, .describe,
            .loseToken, .confirmToken:
            return true
        }
    }

    func perform(on partition: Partition, _ origin: Origin) {
        var command = self
        command.origin = origin
        partition.withShard { $0.directory(command, now: partition.now) }
    }
}
