internal import Structures
internal import Wire

/// A job in memory: from its row, or implied by its message's row.
struct JobEntry {
    enum Place: UInt8 { case none, due, held, leasing }

    var row: JobRow
    var device: DeviceSlot
    var appIndex: UInt16
    var place = Place.none
    var message = MessageSlot.none
    var dueLinks = SlotLinks<JobEntry>()
    var deviceLinks = SlotLinks<JobEntry>()
    /// The alarm of the job's row as last written; 0 without a row.
    var storedWakeAt: GatewayTime = 0
    /// Whether the job has its own row besides the message's row.
    var isStored = false
    /// Whether the row that represents the job is only on disk.
    var isCold = false
    /// Whether the store has reported the alarm of the row that represents the job; it reports each alarm only once.
    var wasReported = false
    var countsAsLeased = false

    /// The key of the row that represents the job: its own, or its message's.
    var alarmKey: StoreKey { isStored ? row.facts.jobKey : row.facts.key }

    var nextOfDevice: JobSlot { deviceLinks.next }

    init(row: JobRow, device: DeviceSlot, appIndex: UInt16) {
        (self.row, self.device, self.appIndex) = (row, device, appIndex)
    }
}
