public import Delivery
public import Wire
public struct StoreError: Error { }
public struct StoreOptions: Sendable { public init() {} }
public final class EmbeddedStore: Sendable {
  public init(path: String, options: StoreOptions) throws {}
  public func loadAll(table: StoreKey.Table, bucket: Bucket) -> [StoredRow] { [] }
  public func makeShard(index: Int, of: Int, post: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) -> EmbeddedShardStore { fatalError() }
  public var acceptsWrites: Bool { true }
  public func close() {}
}
public final class EmbeddedShardStore: ShardStore {
  public var observer: (any ShardStoreObserver)?
  public func beginBatch(_ bucket: Bucket) {}
  public func put(_ key: StoreKey, wakeAt: Int64, prior: PriorRow, byteCount: Int, write: (UnsafeMutableRawBufferPointer) -> Void) -> ValueLocation { fatalError() }
  public func delete(_ key: StoreKey, prior: PriorRow) {}
  public func endBatch() -> Ticket { 0 }
  public var committedTicket: Ticket { 0 }
  public var acceptsWrites: Bool { true }
  public func value(at location: ValueLocation) -> UnsafeRawBufferPointer { fatalError() }
  public func young(_ key: StoreKey) -> YoungLookup { .unknown }
  public func isCertainlyAbsent(_ key: StoreKey) -> Bool { true }
  public func read(_ requests: [StoreRead]) -> ReadToken { 0 }
  public func requestAlarms(upTo time: Int64, limit: Int) -> ReadToken { 0 }
  public var nextAlarm: Int64 { 0 }
  public func turnEnded() {}
  public func loadAll(table: StoreKey.Table) -> [StoredRow] { [] }
}
