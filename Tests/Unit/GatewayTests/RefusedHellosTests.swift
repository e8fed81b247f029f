import Delivery
import Testing
import Wire

@testable import Gateway

@Suite("The last refused Hello of each device")
struct RefusedHellosTests {
    private func refused(_ time: Int64) -> DeviceStatus.RefusedHello {
        .init(time: time, code: CloseCode.badProof.rawValue, reason: "the proof does not match")
    }

    @Test("a device has its last refusal, and the device with the oldest entry makes room for a new one")
    func ring() {
        var table = RefusedHellos()
        for number in 0..<RefusedHellos.deviceCount {
            table.note(DeviceID(high: 1, low: UInt64(number)), refused(Int64(number)))
        }
        table.note(DeviceID(high: 1, low: 0), refused(9_999))
        #expect(table.last(of: DeviceID(high: 1, low: 0))?.time == 9_999)
        table.note(DeviceID(high: 2, low: 0), refused(10_000))
        #expect(table.last(of: DeviceID(high: 1, low: 0)) == nil)
        #expect(table.last(of: DeviceID(high: 1, low: 1))?.time == 1)
        for number in 0..<RefusedHellos.deviceCount - 1 {
            table.note(DeviceID(high: 3, low: UInt64(number)), refused(0))
        }
        #expect(table.last(of: DeviceID(high: 2, low: 0))?.time == 10_000)
        #expect(table.last(of: DeviceID(high: 1, low: 1)) == nil)
    }
}
