package import Quotas
internal import JSON

/// A change of an app through the admin API.
package enum AppAct: String, Sendable, Codable, CaseIterable {
    case create, change, rotate, enable, disable, delete

    /// The name in answers and in the log.
    package var past: String { rawValue + "d" }
}

package enum AppRequest: Sendable {
    case show(String)
    /// `by` is the credential's name, for the log.
    case change(AppChange, by: String)
}

/// A change with its body, which is parsed by the configuration's rules.
package struct AppChange: Sendable, Codable, Equatable {
    package var act: AppAct
    /// Empty for a creation, whose body has the id.
    package var appID: String
    /// JSON; empty if the change needs none.
    package var body: [UInt8]

    package init(_ act: AppAct, appID: String, body: [UInt8]) {
        (self.act, self.appID, self.body) = (act, appID, body)
    }

    /// Whether the change is within the limits; checked again for changes from another gateway.
    package var isSound: Bool { body.count <= Limits.appBodyByteCount && appID.utf8.count <= Limits.appIDByteCount }
}

/// An app without its secrets, for answers.
package struct AppPage: Sendable {
    package struct Secrets: Sendable {
        /// The expiry of each secret, newest first; 0 for never.
        package var ends: [Int64]
        package init(ends: [Int64]) { self.ends = ends }
    }

    package var appID: String
    package var appKey: String
    package var isManaged: Bool
    package var isEnabled: Bool
    package var appSecrets: Secrets
    package var masterSecrets: Secrets
    /// JSON; empty for an app of the configuration file.
    package var settings: String
    package var createdAt: Int64
    package var changedAt: Int64
    /// The use of the app's quotas, as far as this gateway knows it.
    package var quotas: [QuotaUse] = []

    package init(
        appID: String, appKey: String, isManaged: Bool, isEnabled: Bool, appSecrets: Secrets, masterSecrets: Secrets,
        settings: String = "", createdAt: Int64 = 0, changedAt: Int64 = 0
    ) {
        (self.appID, self.appKey, self.isManaged, self.isEnabled) = (appID, appKey, isManaged, isEnabled)
        (self.appSecrets, self.masterSecrets, self.settings) = (appSecrets, masterSecrets, settings)
        (self.createdAt, self.changedAt) = (createdAt, changedAt)
    }
}

package enum AppRefusal: String, Sendable, Codable {
    case invalid, conflict, unknown
}

package enum AppAnswer {
    package static let unknown = AdminFault(.notFound, "no such app, or not one of this credential's").response

    package static func refused(_ refusal: AppRefusal, _ message: String) -> APIResponse {
        let code: AdminFault.Code =
            switch refusal {
            case .invalid: .invalidParameter
            case .conflict: .conflict
            case .unknown: .notFound
            }
        return AdminFault(code, message).response
    }

    static func list(_ apps: [App]) -> APIResponse {
        .object([
            "apps": apps.map { ["appId": $0.appID] + state(isManaged: $0.isManaged, isEnabled: $0.isEnabled) }
        ])
    }

    private static func state(isManaged: Bool, isEnabled: Bool) -> JSONObject {
        ["source": isManaged ? "api" : "file", "state": isEnabled ? "enabled" : "disabled"]
    }

    package static func page(_ page: AppPage) -> APIResponse { .object(members(page)) }

    /// Returns the result of a change; `secrets` are generated ones, which no other answer shows.
    package static func done(_ act: AppAct, isNew: Bool, _ page: AppPage, secrets: [(name: String, text: String)])
        -> APIResponse
    {
        let head = JSONObject([(act.past, isNew)] + secrets.map { ($0.name, $0.text) })
        return .object(
            status: act == .create && isNew ? 201 : 200,
            head + (act == .delete ? ["appId": page.appID] : members(page)))
    }

    private static func members(_ page: AppPage) -> JSONObject {
        let shown: JSONObject =
            ["appId": page.appID, "appKey": page.appKey] + state(isManaged: page.isManaged, isEnabled: page.isEnabled)
            + [
                "appSecrets": list(page.appSecrets), "masterSecrets": list(page.masterSecrets),
                "quotas": JSONObject(page.quotas.map { ($0.quota.key, quota($0)) }).unlessEmpty,
            ]
        guard page.isManaged else { return shown }
        return shown + [
            "settings": JSONText(Array(page.settings.utf8)), "createdAt": page.createdAt, "changedAt": page.changedAt,
        ]
    }

    private static func list(_ secrets: AppPage.Secrets) -> [JSONObject] {
        secrets.ends.map { end in
            let end: any JSONWritable = end == 0 ? JSONNull() : end
            return ["validUntil": end]
        }
    }

    private static func quota(_ use: QuotaUse) -> JSONObject {
        ["limit": use.limit, "share": use.share, "used": use.used, "refused": use.refused]
    }
}

extension AdminAPI {
    /// Parses a call that changes an app; its credential must cover all apps.
    func appChange(_ act: AppAct, _ request: APIRequest, _ path: RequestPath) throws(AdminFault) -> AdminAction {
        let credential = try authorize(request, for: .admin)
        guard credential.apps == nil else {
            throw AdminFault(
                .forbidden, "credential \(credential.name) is for some apps; changes of apps need one for all apps")
        }
        guard request.body.count <= Limits.appBodyByteCount else {
            throw AdminFault(.bodyTooLarge, "a body of this call has at most \(Limits.appBodyByteCount) bytes")
        }
        let appID = act == .create ? "" : path.text(2)
        guard appID.utf8.count <= Limits.appIDByteCount else { throw .notFound }
        let takesBody = [.create, .change, .rotate].contains(act)
        return .app(
            .change(AppChange(act, appID: appID, body: takesBody ? Array(request.body) : []), by: credential.name))
    }
}
