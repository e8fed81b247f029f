internal import Cryptography
package import Delivery
internal import JSON
internal import Wire

extension PublicAPI {
    /// Parses `POST /push/single/cid`.
    func pushSingle(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let body = try parameters(request, .pushToDevice)
        let digest = SHA256.digest(request.body).words.0
        let push = try messages.parse(
            body, app: app, endpoint: "push/single/cid", itemIndex: 0, requestDigest: digest, now: now)
        return .push([push], PushForm(kind: .single, notes: messages.notes))
    }

    /// Parses the body of `POST /push/single/cid` for an operator, whose permission was already checked.
    package func push(_ request: APIRequest, app: App, now: GatewayTime) -> PublicAction {
        messages.begin()
        do throws(GetuiFault) {
            return try pushSingle(request, app: app, now: now)
        } catch {
            return .respond(error.response)
        }
    }

    /// Parses `POST /push/single/batch/cid`; an invalid item does not affect the others.
    func pushBatch(_ request: APIRequest, app: App, now: GatewayTime) throws(GetuiFault) -> PublicAction {
        let (list, isAsync) = try batchItems(try parameters(request, .batch), app: app)
        var form = PushForm(kind: .batch(isAsync: isAsync))
        var pushes: [ParsedPush] = []
        pushes.reserveCapacity(app.bounds.batchItems)
        var canonical = JSONWriter(capacity: 1_024)
        for (index, item) in list.elements.enumerated() {
            do throws(GetuiFault) {
                guard item.kind == .object else { throw .type("msg_list") }
                // The digest covers only the item, so a retry may group items differently.
                canonical.removeAll()
                canonical.value(item)
                let digest = SHA256.digest(canonical.bytes).words.0
                try messages.check(item, .pushToDevice, of: parser)
                let push = try messages.parse(
                    item, app: app, endpoint: "push/single/batch/cid", itemIndex: index, requestDigest: digest, now: now
                )
                pushes.append(push)
            } catch {
                form.refused.append(PushForm.Refused(itemIndex: index, code: error.code, message: error.message))
            }
        }
        guard !pushes.isEmpty else { return .respond(PushAnswer.nothingAccepted(form.refused)) }
        form.notes = messages.notes
        return .push(pushes, form)
    }

    /// Parses `GET /user/status/{c1,c2…}`.
    func statusQuery(_ segment: ArraySlice<UInt8>, app: App) throws(GetuiFault) -> StatusQuery {
        var query = StatusQuery()
        var seen = Set<DeviceID>()
        var count = 0
        for text in segment.split(separator: UInt8(ascii: ",")) {
            count += 1
            guard count <= userLimits.statusDevices else { throw .size("cid", "at most \(userLimits.statusDevices)") }
            guard let cid = DeviceID(hex: text) else {
                query.unknown.append(String(decoding: text.prefix(64), as: UTF8.self))
                continue
            }
            guard seen.insert(cid).inserted else { continue }
            query.devices.append(DeviceAddress(app: app.key, bucket: app.bucket(of: cid), cid: cid))
        }
        guard count > 0 else { throw .empty("cid") }
        return query
    }
}

package struct StatusQuery: Sendable {
    package var devices: [DeviceAddress] = []
    /// Requested texts that are not a cid.
    package var unknown: [String] = []
    package init() {}
}
