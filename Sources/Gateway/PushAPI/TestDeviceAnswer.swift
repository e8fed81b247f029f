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
                writer.object { writer in
                    list("success", items.map(\.place.cid).filter { !refused.contains($0) }.map(\.description), &writer)
                    list("failed", failed, &writer)
                }
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
                writer.object { writer in
                    writer.array("list") { writer in
                        for device in result.page { render(device, &writer) }
                    }
                    writer.object("pagination") { writer in
                        writer.member("total_page", (result.total + query.pageSize - 1) / query.pageSize)
                        writer.member("page_size", query.pageSize)
                        writer.member("total", result.total)
                        writer.member("current_page", query.page)
                    }
                }
            }
        }
    }

    private static func render(_ device: TestDevice, _ writer: inout JSONWriter) {
        writer.object { writer in
            writer.member("cid", device.cid.description)
            writer.member("remark", device.remark)
            writer.member("phone_type", "2")
            writer.member("update_time", dateTime(device.updatedAt))
            writer.member("create_time", dateTime(device.createdAt))
        }
    }

    private static func list(_ name: StaticString, _ texts: [String], _ writer: inout JSONWriter) {
        writer.strings(name, texts)
    }
}
