internal import Delivery
internal import Wire

extension PublicAPI {
    func taskAction(_ endpoint: PublicEndpoint, _ path: RequestPath, app: App) throws(GetuiFault) -> CampaignAction {
        switch endpoint {
        case .schedule, .cancelSchedule:
            guard let task = TaskID(text: path.text(4)), task.kind != .single else {
                throw GetuiFault(code: .badSchedule, message: "taskid is invalid")
            }
            return endpoint == .schedule ? .schedule(task, app.key) : .cancel(task, app.key)
        case .messageDetail:
            guard let cid = DeviceID(hex: path[4]) else { throw .invalid("cid") }
            guard let task = TaskID(text: path.text(5)) else { throw .invalid("taskid") }
            return .detail(
                DetailQuery(
                    task: task, device: DeviceAddress(app: app.key, bucket: app.bucket(of: cid), cid: cid),
                    digest: messageDigest(of: task, for: cid)))
        case .stopTask:
            guard let task = TaskID(text: path.text(3)) else { throw .invalid("taskid") }
            return .stop(task, app.key)
        default: throw .notFound
        }
    }
}
