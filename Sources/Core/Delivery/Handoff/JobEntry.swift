internal import Structures
internal import Wire

/// A job in memory: as its row says, or as the row of its message implies while it has none.
struct JobEntry {
    enum Place: UInt8 { case none, due, held, leasing }

    var row: JobRow
    var device: DeviceSlot
    var appIndex: UInt16
    var place = Place.none
    /// Its message's slot, if the message is in memory.
    var message = MessageSlot.none
    /// In the app's due list.
    var dueLinks = SlotLinks<JobEntry>()
    /// Among the device's jobs.
    var deviceLinks = SlotLinks<JobEntry>()
    /// The alarm of the row that has the job, as it was last written; 0: no row has it.
    var storedWakeAt: GatewayTime = 0
    /// The store has a row for the job, besides the message's row.
    var isStored = false
    /// The row that has the job is on disk and not young.
    var isCold = false
    /// The store has reported that row's alarm and will not do so again.
    var wasReported = false
    var countsAsLeased = false

    /// The row that has the job: its own, or its message's.
    var alarmKey: StoreKey { isStored ? row.facts.jobKey : row.facts.key }

    var nextOfDevice: JobSlot { deviceLinks.next }

    init(row: JobRow, device: DeviceSlot, appIndex: UInt16) {
        (self.row, self.device, self.appIndex) = (row, device, appIndex)
    }
}
