internal import Delivery
internal import Wire

/// The last refused Hello of each recently refused device, for support engineers.
///
/// A client without a valid proof can also make an entry for a cid, so an entry proves nothing about the device. The table is a
/// ring: a new device replaces the oldest entry. A restart clears the table.
struct RefusedHellos {
    static let deviceCount = 4_096

    private var entries: [DeviceID: DeviceStatus.RefusedHello] = [:]
    /// The devices in the order of their first entries.
    private var order: [DeviceID] = []
    private var next = 0

    func last(of cid: DeviceID) -> DeviceStatus.RefusedHello? { entries[cid] }

    mutating func note(_ cid: DeviceID, _ refused: DeviceStatus.RefusedHello) {
        guard entries.updateValue(refused, forKey: cid) == nil else { return }
        guard order.count == Self.deviceCount else { return order.append(cid) }
        entries[order[next]] = nil
        order[next] = cid
        next = (next + 1) % Self.deviceCount
    }
}
