internal import Wire

enum TagWalkEnd {
    case whole, unreadable
    /// The walk was not started.
    case tooManyWalks
}

extension Shard {
    /// Finds the devices of an app that satisfy the expression, in every `stride`-th bucket from `first` to `end`.
    ///
    /// `take` gets them in portions of one bucket each. `finish` is called once. The walk may or may not see concurrent changes.
    mutating func walkTags(
        of app: AppKey, where expression: TagExpression, first: Int, stride: Int, end: Int = Bucket.count,
        take: @escaping (inout Shard, Bucket, [DeviceID]) -> Void,
        finish: @escaping (inout Shard, TagWalkEnd) -> Void
    ) {
        guard !expression.isNever else {
            finish(&self, .whole)
            return
        }
        // Each app may always have one walk, so other apps' walks cannot block it.
        guard tagWalks.take(app, limit: limits.tagWalks) else {
            finish(&self, .tooManyWalks)
            return
        }
        let walk = TagWalk(of: app, where: expression, first: first, stride: stride, end: end)
        readPages(walk, take) { shard, end in
            shard.tagWalks.give(back: app)
            finish(&shard, end)
        }
    }

    private mutating func readPages(
        _ walk: TagWalk, _ take: @escaping (inout Shard, Bucket, [DeviceID]) -> Void,
        finish: @escaping (inout Shard, TagWalkEnd) -> Void
    ) {
        let reads = walk.nextReads()
        guard !reads.isEmpty else { return finish(&self, .whole) }
        read(reads) { shard, reply in
            guard walk.take(reply) else { return finish(&shard, .unreadable) }
            shard.merge(walk, take, finish: finish)
        }
    }

    /// Merges the pages, up to the work limit of a turn, then requests more.
    private mutating func merge(
        _ walk: TagWalk, _ take: @escaping (inout Shard, Bucket, [DeviceID]) -> Void,
        finish: @escaping (inout Shard, TagWalkEnd) -> Void
    ) {
        let (found, isDone) = walk.merge(work: limits.tagWalkWork)
        for portion in found { take(&self, portion.bucket, portion.devices) }
        if isDone { return readPages(walk, take, finish: finish) }
        later { $0.merge(walk, take, finish: finish) }
    }

    mutating func count(_ command: DirectoryCommand, _ expression: TagExpression, first: Int, stride: Int) {
        let origin = command.origin
        let counted = Counted()
        walkTags(of: command.app, where: expression, first: first, stride: stride) { _, _, found in
            counted.sum += found.count
        } finish: { shard, end in
            shard.reply(origin, end == .whole ? .count(counted.sum) : .failed)
        }
    }

    private final class Counted { var sum = 0 }
}
