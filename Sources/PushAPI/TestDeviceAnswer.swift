internal import Directory
internal import JSON
internal import Wire

/// What calls about test devices are answered.
package enum TestDeviceAnswer {
    /// Whether a device exists could not be read.
    package static let unreadable = APIResponse.getui(
        .busy, "the directory cannot be read now, nothing was done, retry")

    package static func render(_ request: TestDeviceRequest, _ result: TestDeviceResult) -> APIResponse {
        let failed = result.failed.map(\.description) + request.notCIDs
        switch request.work {
        case .add(let items):
            let refused = Set(result.failed)
            return .getui { writer in
                writer.beginObject()
                list("success", items.map(\.place.cid).filter { !refused.contains($0) }.map(\.description), &writer)
                list("failed", failed, &writer)
                writer.endObject()
            } beside: { writer in
                if result.isFull { writer.member("reason", "tooManyTestDevices" as StaticString) }
                request.notes.write(to: &writer)
            }
        case .update:
            guard failed.isEmpty else { return GetuiFault.targetUser.response }
            return .getui(data: nil, beside: { request.notes.write(to: &$0) })
        case .delete:
            return .getui(
                data: nil,
                beside: { writer in
                    if !failed.isEmpty { list("unknown", failed, &writer) }
                    request.notes.write(to: &writer)
                })
        case .list(let query):
            return .getui { writer in
                writer.beginObject()
                writer.key("list")
                writer.beginArray()
                for device in result.page { render(device, &writer) }
                writer.endArray()
                writer.key("pagination")
                writer.beginObject()
                writer.key("total_page")
                writer.integer(Int64((result.total + query.pageSize - 1) / query.pageSize))
                writer.key("page_size")
                writer.integer(Int64(query.pageSize))
                writer.key("total")
                writer.integer(Int64(result.total))
                writer.key("current_page")
                writer.integer(Int64(query.page))
                writer.endObject()
                writer.endObject()
            }
        }
    }

    private static func render(_ device: TestDevice, _ writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("cid")
        writer.string(device.cid.description)
        writer.key("remark")
        writer.string(device.remark)
        writer.key("phone_type")
        writer.string("2")
        writer.key("update_time")
        writer.string(dateTime(device.updatedAt))
        writer.key("create_time")
        writer.string(dateTime(device.createdAt))
        writer.endObject()
    }

    private static func list(_ name: StaticString, _ texts: [String], _ writer: inout JSONWriter) {
        writer.key(name)
        writer.beginArray()
        for text in texts { writer.string(text) }
        writer.endArray()
    }
}
