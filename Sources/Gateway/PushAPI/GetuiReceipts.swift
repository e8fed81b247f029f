internal import Cryptography
package import Delivery
internal import JSON
internal import Wire

/// Pages of an app's events in the format of Getui's receipts, for servers with a handler for such receipts.
///
/// The body is text: one JSON object a line. Fields, `code` and `sign` are those of docs.getui.com/getui/server/receipt, whose
/// example also has `actionId` and `recvtime`. The numbers of `actionId` are from comments in public handlers of such receipts (a
/// `GetuiCallBackVO` and a `PushMessageController` on GitHub). docs/use/GetuiCompatibility.md, "Receipts", has the table of
/// events, and lists what was not confirmed.
package enum GetuiReceipts {
    enum Code: Int {
        case success = 200
        /// Getui's text is "the call of Apple's interface failed"; here also for other vendors.
        case vendorFailed = 400
    }

    struct Receipt: Equatable {
        var code: Code
        var action: UInt32?
    }

    /// Returns the receipt of an event; `nil` if Getui has none.
    ///
    /// Getui's codes 401 and 402 are about targets that the push call itself refuses here, and 500 is about Getui's own failures.
    static func receipt(of item: FeedItem) -> Receipt? {
        switch item.kind {
        case .delivered, .deliveredOffline: Receipt(code: .success, action: 0)
        // Getui's vendor numbers mean that the phone reported the alert as shown. Here, that is the event `shown`.
        case .alerted: Receipt(code: .success, action: nil)
        case .shown: Receipt(code: .success, action: shownAction(alertChannel(item)))
        case .clicked: Receipt(code: .success, action: clickedAction(alertChannel(item)))
        case .action:
            if case .action(let number) = item.detail { Receipt(code: .success, action: number) } else { nil }
        case .failed, .tokenQuarantined: Receipt(code: .vendorFailed, action: nil)
        // An event `clicked` precedes `opened`, and an event `alerted` precedes `handedOff`.
        case .opened, .handedOff: nil
        case .expired, .collapsed, .revoked, .overflowed, .online, .offline, .upstream: nil
        }
    }

    private static func alertChannel(_ item: FeedItem) -> VendorChannel? {
        if case .ofAlert(true, let channel) = item.detail { channel } else { nil }
    }

    static func shownAction(_ channel: VendorChannel?) -> UInt32 {
        switch channel {
        case .apns: 10_009
        case .hms: 110_000
        case .xiaomi: 120_000
        case .meizu: 130_000
        case .oppo: 140_000
        case .vivo: 150_000
        default: 10_000
        }
    }

    static func clickedAction(_ channel: VendorChannel?) -> UInt32 {
        switch channel {
        case .apns: 10_019
        case .xiaomi: 120_010
        case .meizu: 130_010
        default: 10_010
        }
    }

    /// Returns the receipts of a page, without a line end after the last; empty if no event of the page has one.
    package static func body(_ page: FeedPage, appID: String, masterSecret: String) -> [UInt8] {
        var lines: [UInt8] = []
        for item in page.items {
            guard !item.message.isNone, let receipt = receipt(of: item) else { continue }
            if !lines.isEmpty { lines.append(UInt8(ascii: "\n")) }
            lines += line(item, receipt, appID: appID, masterSecret: masterSecret)
        }
        return lines
    }

    private static func line(_ item: FeedItem, _ receipt: Receipt, appID: String, masterSecret: String) -> [UInt8] {
        let (cid, task, message) = (item.cid.description, item.task.text, item.message.description)
        var writer = JSONWriter(capacity: 384 + 2 * item.customCallback.count)
        writer.object { writer in
            writer.member("appid", appID)
            writer.member("cid", cid)
            writer.member("taskid", task)
            writer.member("msgid", message)
            writer.member("code", String(receipt.code.rawValue))
            writer.member("desc", receipt.code == .success ? "ok" : failure(item))
            writer.member(
                "sign", sign(appID: appID, cid: cid, task: task, message: message, masterSecret: masterSecret))
            if let action = receipt.action { writer.member("actionId", String(action)) }
            writer.member("recvtime", item.at)
            if !item.customCallback.isEmpty {
                writer.member("custom_callback", String(decoding: item.customCallback, as: UTF8.self))
            }
        }
        return writer.bytes
    }

    private static func failure(_ item: FeedItem) -> String {
        item.payload.isEmpty ? "\(item.kind)" : String(decoding: item.payload, as: UTF8.self)
    }

    /// Returns Getui's signature, MD5(appid + cid + taskid + msgid + masterSecret) in hex.
    static func sign(appID: String, cid: String, task: String, message: String, masterSecret: String) -> String {
        MD5.hex(Array((appID + cid + task + message + masterSecret).utf8))
    }
}
