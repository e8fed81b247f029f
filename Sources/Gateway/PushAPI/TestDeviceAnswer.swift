package import Directory
internal import JSON
internal import Wire

package enum TestDeviceAnswer {
    /// The answer if the existence of a device could not be read.
    package static let unreadable = APIResponse.getui(
        .busy, "the directory cannot be read now, nothing was done, retry")

    /// Writes the answer.
    ///
    /// - Parameters:
    ///   - request: The call.
    ///   - result: The result of the list's owner.
    ///   - page: The descriptions of the devices in `result.page`, in the same order.
    /// - Returns: The response.
    package static func render(
        _ request: TestDeviceRequest, _ result: TestDeviceResult, page: [ItemOutcome]
    ) -> APIResponse {
        let failed = result.failed.map(\.description) + request.notCIDs
        let notes = request.notes.members
        switch request.work {
        case .add(let items):
            let refused = Set(result.failed)
            let done = items.map(\.place.cid).filter { !refused.contains($0) }.map(\.description)
            let data: JSONObject = ["success": done, "failed": failed]
            return .success(data, longwire: ["reason": result.isFull ? "tooManyTestDevices" : nil] + notes)
        case .update:
            return failed.isEmpty ? .success(longwire: notes) : GetuiFault.targetUser.response
        case .delete:
            return .success(longwire: ["unknown": failed.unlessEmpty] + notes)
        case .list(let query):
            let pages: JSONObject = [
                "total_page": (result.total + query.pageSize - 1) / query.pageSize, "page_size": query.pageSize,
                "total": result.total, "current_page": query.page,
            ]
            let data: JSONObject = ["list": zip(result.page, page).map(render), "pagination": pages]
            return .success(data)
        }
    }

    private static func render(_ device: TestDevice, _ outcome: ItemOutcome) -> JSONObject {
        // A device that was deleted stays on the list; its platform is unknown.
        let phoneType = if case .device(let detail) = outcome { UserAnswer.phoneType(detail) } else { 0 }
        return [
            "cid": device.cid.description, "remark": device.remark, "phone_type": "\(phoneType)",
            "update_time": dateTime(device.updatedAt), "create_time": dateTime(device.createdAt),
        ]
    }
}
