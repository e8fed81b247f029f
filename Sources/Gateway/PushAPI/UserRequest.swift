package import Quotas
package import Directory
package import Wire

/// A call about users, parsed and validated: what to do, and how to say what came of it.
package struct UserRequest: Sendable {
    /// What is answered, and what was asked for in the words of the caller.
    enum Form: Sendable {
        /// Code and message only; `subject` names what may be refused as invalid.
        case change
        case unbindAll
        case aliasOfDevice(type: UInt64)
        case devicesOfAlias
        case tagsOfDevice
        case tagsReplaced
        case tagBatch
        case details
        /// The same by the names of `user/info`.
        case info
        case deviceStatus
        case count
    }

    package let app: AppKey
    /// Counted against the app's quota first.
    package let counted: RateKind?
    package let work: DirectoryOperation.Work
    let form: Form
    /// The devices of the work's items, in order.
    let devices: [DeviceID]
    /// What was named and cannot be a cid.
    let notCIDs: [String]
    /// Items of the call's list that cannot be read.
    var refused: [PushForm.Refused] = []
    var notes = RequestNotes()
    let appID: String

    init(
        app: App, counted: RateKind? = nil, work: DirectoryOperation.Work, form: Form, devices: [DeviceID] = [],
        notCIDs: [String] = []
    ) {
        (self.app, self.appID, self.counted, self.work, self.form) = (app.key, app.appID, counted, work, form)
        (self.devices, self.notCIDs) = (devices, notCIDs)
    }
}
