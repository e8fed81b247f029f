package import Quotas
package import Directory
package import Wire

/// A parsed and validated call about users, with the format of its answer.
package struct UserRequest: Sendable {
    enum Form: Sendable {
        /// Only a code and a message.
        case change
        case unbindAll
        case aliasOfDevice(type: UInt64)
        case devicesOfAlias
        case tagsOfDevice
        case tagsReplaced
        case tagBatch
        case details
        /// Like `details`, with the field names of `user/info`.
        case info
        case deviceStatus
        case count
    }

    package let app: AppKey
    /// The rate limit to check first.
    package let counted: RateKind?
    package let work: DirectoryOperation.Work
    let form: Form
    /// The devices of the work's items, in order.
    let devices: [DeviceID]
    /// Texts in the request that are not a cid.
    let notCIDs: [String]
    /// Invalid items of the call's list.
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
