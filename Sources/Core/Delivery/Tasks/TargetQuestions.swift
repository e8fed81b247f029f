internal import Structures
package import Wire

/// Stores devices of a scheduled task until its time.
package struct ParkTargets: ShardQuestion {
    package enum Answer: Sendable, Codable {
        case parked
        /// The task is not scheduled any more.
        case refused(TaskState)
        case unknown
        /// The row would exceed the store's limit.
        case tooLarge
        case busy
    }

    package var task: TaskID
    package var app: AppKey
    package var devices: [DeviceID]
    package init(_ task: TaskID, _ app: AppKey, _ devices: [DeviceID]) {
        (self.task, self.app, self.devices) = (task, app, devices)
    }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Answer>) {
        guard devices.count <= TaskBounds.targetsOfARow else { return shard.answer(reply, .tooLarge) }
        guard shard.store.acceptsWrites else { return shard.answerBusy(reply) }
        shard.withTask(task, app, reply, absent: .unknown) { shard, record, _ in
            guard record.state == .scheduled else { return shard.answer(reply, .refused(record.state)) }
            let key = StoreKey(task.home, .taskTargets, task, item: shard.tasks.nextPage(shard.now))
            shard.inBatch(in: task.home) { shard in
                shard.store.putRow(
                    key, wakeAt: record.scheduleAt + shard.limits.reportRetention, prior: .none,
                    byteCount: TargetsRow.byteCount(devices)
                ) { TargetsRow.write(devices, into: $0) }
            }
            shard.answer(reply, .parked)
        }
    }
}

/// Reads the stored devices of a task, one row at a time.
package struct ReadTargets: ShardQuestion {
    package struct Page: Sendable, Codable {
        package var devices: [DeviceID]
        /// The start of the next page; `nil` after the last.
        package var next: UInt64?
        package init(devices: [DeviceID], next: UInt64?) { (self.devices, self.next) = (devices, next) }
    }

    package var task: TaskID
    package var start: UInt64
    package init(_ task: TaskID, from start: UInt64) { (self.task, self.start) = (task, start) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Page?>) {
        let start = StoreKey(task.home, .taskTargets, task, item: start)
        shard.read([.scan(partition: start, rowLimit: 1, byteLimit: 1)]) { shard, read in
            guard case .rows(let rows, let isComplete)? = read.results.first else { return shard.answerBusy(reply) }
            let targets = rows.first.map { TargetsRow.read($0.bytes) } ?? []
            if targets == nil, let row = rows.first { shard.damaged(row.key) }
            let next = isComplete ? nil : rows.last.map { $0.key.item &+ 1 }
            shard.answer(reply, Page(devices: targets ?? [], next: next))
        }
    }
}

/// Adds a task to its group; the answer is `false` if the caller must retry.
package struct JoinGroup: ShardQuestion {
    package var task: TaskID
    package var group: GroupPlace
    package init(_ task: TaskID, _ group: GroupPlace) { (self.task, self.group) = (task, group) }

    package func perform(on shard: inout Shard, _ reply: ShardReply<Bool>) {
        guard shard.store.acceptsWrites else { return shard.answerBusy(reply) }
        let key = StoreKey(group.bucket, .taskGroup, ownerHigh: group.high, ownerLow: group.low, item: task.low)
        // A repeated request joins again because the process may have stopped before the first row was durable.
        shard.lookUp(key) { shard, found in
            switch found {
            case .unreadable: return shard.answerBusy(reply)
            case .found: return shard.answer(reply, true)
            case .absent: break
            }
            shard.inBatch(in: group.bucket) { shard in
                shard.store.putRow(key, wakeAt: shard.now + shard.limits.reportRetention, prior: .none, byteCount: 16) {
                    var writer = RowWriter($0)
                    writer.put(task.high)
                    writer.put(task.low)
                }
            }
            shard.answer(reply, true)
        }
    }
}

/// Reads the tasks of a group.
package struct ReadGroup: ShardQuestion {
    package var group: GroupPlace
    package init(_ group: GroupPlace) { self.group = group }

    package func perform(on shard: inout Shard, _ reply: ShardReply<[TaskID]?>) { readOn(&shard, from: 0, [], reply) }

    private func readOn(_ shard: inout Shard, from item: UInt64, _ found: [TaskID], _ reply: ShardReply<[TaskID]?>) {
        let start = StoreKey(group.bucket, .taskGroup, ownerHigh: group.high, ownerLow: group.low, item: item)
        shard.read([.scan(partition: start, rowLimit: 512, byteLimit: 1 << 20)]) { shard, read in
            guard case .rows(let rows, let isComplete)? = read.results.first else { return shard.answerBusy(reply) }
            var found = found
            for row in rows {
                var reader = RowReader(row.bytes)
                if let task = reader.nextIdentifier(TaskID.self) { found.append(task) }
            }
            guard !isComplete, let last = rows.last else { return shard.answer(reply, found) }
            readOn(&shard, from: last.key.item &+ 1, found, reply)
        }
    }
}
