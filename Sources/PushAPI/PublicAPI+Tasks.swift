internal import Delivery
internal import Wire

// What is asked about one task.
extension PublicAPI {
    func taskRoute(_ request: APIRequest, _ path: RequestPath, now: GatewayTime) throws(GetuiFault) -> PublicAction? {
        guard path.count >= 4, path.matches(2, "task") else { return nil }
        if path.count == 5, path.matches(3, "schedule") {
            guard request.method == .get || request.method == .delete else { throw .methodNotAllowed("GET, DELETE") }
            let app = try authenticated(request, path, now: now)
            guard let task = TaskID(text: path.text(4)), task.kind != .single else {
                throw GetuiFault(code: .badSchedule, message: "taskid is invalid")
            }
            return .campaign(request.method == .get ? .schedule(task, app.key) : .cancel(task, app.key))
        }
        if path.count == 6, path.matches(3, "detail") {
            try require(.get, "GET", request)
            let app = try authenticated(request, path, now: now)
            guard let cid = DeviceID(hex: path[4]) else { throw .invalid("cid") }
            guard let task = TaskID(text: path.text(5)) else { throw .invalid("taskid") }
            return .campaign(
                .detail(
                    DetailQuery(
                        task: task, device: DeviceAddress(app: app.key, bucket: app.bucket(of: cid), cid: cid),
                        digest: messageDigest(of: task, for: cid))))
        }
        guard path.count == 4 else { return nil }
        try require(.delete, "DELETE", request)
        let app = try authenticated(request, path, now: now)
        guard let task = TaskID(text: path.text(3)) else { throw .invalid("taskid") }
        return .campaign(.stop(task, app.key))
    }
}
