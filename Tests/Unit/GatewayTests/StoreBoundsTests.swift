import Delivery
import EventLoops
import MessageStore
import PushAPI
import Testing
import Wire

@testable import Gateway

@Suite("Bounds of all layers")
struct StoreBoundsTests {
    @Test("the largest rows and batches fit the store under any limits")
    func storeBounds() {
        var largest = GatewayLimits(), smallest = GatewayLimits()
        for key in LimitKey.all {
            key.write(&largest, key.range.upperBound)
            key.write(&smallest, key.range.lowerBound)
        }
        for limits in [largest, smallest, GatewayLimits()] {
            for table in StoreKey.Table.allCases where table != .meta {
                let byteCount = RowBounds.byteCount(of: table, limits.shardLimits) ?? .max
                #expect(byteCount <= StoreBounds.valueByteCount, "\(table): \(byteCount)")
            }
            let batch = RowBounds.largestBatch(limits.shardLimits)
            #expect(batch.operations <= StoreBounds.operationCount, "\(batch)")
            #expect(batch.byteCount <= StoreBounds.smallestBatchByteCount, "\(batch)")
            let segment = MessageStore.Limits.segmentByteCount(journalByteLimit: Int(limits.journalBytes))
            #expect(segment - 64 >= StoreBounds.smallestBatchByteCount && segment * 8 <= Int(limits.journalBytes))
            let uncommitted = MessageStore.Limits.uncommittedByteCount(journalByteLimit: Int(limits.journalBytes))
            #expect(uncommitted >= batch.byteCount && uncommitted <= Int(limits.journalBytes) / 2)
            // The stream buffers an incomplete frame and at most one more receive.
            #expect(limits.frameBytes + FrameHeader.byteCount <= EventLoops.Limits.unconsumedByteCount)
            // A message fits a frame of either direction, and a queue at its smallest byte limit.
            let message = RowBounds.byteCount(of: .message, limits.shardLimits) ?? .max
            #expect(message <= limits.frameBytes && message <= 65_536)
        }
        // The largest of the gateway's own rows is a test device with its remark.
        let remark = String(repeating: "\u{1F4A1}", count: PushAPI.Limits.remarkCharacterCount)
        #expect(remark.utf8.count + 64 <= StoreBounds.valueByteCount)
    }
}
