internal import Delivery
internal import JSON
internal import Wire

/// The attributes of a device in answers; an unknown attribute is absent.
enum DeviceAttributesAnswer {
    static func members(_ attributes: DeviceAttributes) -> JSONObject {
        let permission: StaticString? =
            switch attributes.notificationPermission {
            case .unknown: nil
            case .allowed: "allowed"
            case .denied: "denied"
            }
        return [
            "platform": attributes.platform == .unknown ? nil : attributes.platform.name,
            "brand": attributes.brand.unlessEmpty, "model": attributes.model.unlessEmpty,
            "systemVersion": attributes.systemVersion.unlessEmpty, "appVersion": attributes.appVersion.unlessEmpty,
            "locale": attributes.locale.unlessEmpty, "timeZone": attributes.timeZone.unlessEmpty,
            "notificationPermission": permission,
        ]
    }
}
