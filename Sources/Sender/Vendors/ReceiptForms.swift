internal import JSON
internal import TextForms

/// Receipts of Huawei and Honor: `{"statuses":[{"token","biTag","requestId","status"}]}`.
///
/// HarmonyOS nests the code in `deliveryStatus.result`. Sources:
/// https://developer.huawei.com/consumer/cn/doc/HMSCore-Guides/msg-receipt-guide-0000001050040176 and
/// https://developer.huawei.com/consumer/cn/doc/harmonyos-guides/push-msg-receipt.
enum HuaweiReceipts {
    static func read(_ value: JSONValue, _ vendor: Vendor) -> [Receipt]? {
        guard let list = value["statuses"], list.kind == .array else { return nil }
        return list.elements.compactMap { item in
            let nested = item["deliveryStatus"]?["result"] ?? item["formStatus"]?["result"]
            guard let code = (item["status"] ?? nested)?.lenientInteger else { return nil }
            let token = item["token"]?.string
            guard (token?.utf8.count ?? 0) <= Receipts.tokenByteCount else { return nil }
            let time =
                item["timestamp"] ?? item["deliveryStatus"]?["timestamp"] ?? item["formStatus"]?["timestamp"]
            return Receipt(
                vendor: vendor, token: token, messageID: ReceiptText.messageID(item["biTag"]?.string),
                vendorID: PeerText.bounded(item["requestId"]?.lenientText ?? ""), kind: kind(code),
                at: ReceiptText.time(time), reason: String(code))
        }
    }

    private static func kind(_ code: Int64) -> Receipt.Kind {
        switch code {
        case 0: .delivered
        // Code 2: the app is not installed. Code 5: the device does not know the token.
        case 2, 5: .badToken
        // 6 switched off, 10 inactive device, 15 replaced, 102 frequency, 201 control.
        default: .notShown
        }
    }
}

/// Receipts of Xiaomi and vivo: an object whose names are the vendor's message ids.
///
/// Xiaomi: https://dev.mi.com/xiaomihyperos/documentation/detail?pId=1558 (form field `data`, types 1, 2 and 16). vivo: the form
/// `{"TASKID":{"param","targets"}}` is not confirmed.
enum KeyedReceipts {
    static func read(_ value: JSONValue, _ vendor: Vendor) -> [Receipt]? {
        guard value.kind == .object else { return nil }
        var receipts: [Receipt] = []
        for (key, item) in value.members {
            guard item.kind == .object, let id = key.string else { continue }
            let code = (vendor == .xiaomi ? item["type"] : item["ackType"])?.lenientInteger
            for token in ReceiptText.tokens(item["targets"]) {
                receipts.append(
                    Receipt(
                        vendor: vendor, token: token, messageID: ReceiptText.messageID(item["param"]?.string),
                        vendorID: PeerText.bounded(id), kind: vendor == .xiaomi ? xiaomi(code) : vivo(code),
                        at: ReceiptText.time(item["timestamp"]), reason: code.map(String.init) ?? ""))
                guard receipts.count <= Receipts.receiptCount else { return nil }
            }
        }
        return receipts
    }

    private static func xiaomi(_ code: Int64?) -> Receipt.Kind {
        switch code {
        case 1: .delivered
        case 2: .clicked
        case 16: .badToken
        // 32 notifications off, 64 daily limit and other reasons.
        default: .notShown
        }
    }

    private static func vivo(_ code: Int64?) -> Receipt.Kind {
        switch code {
        case nil, 0: .delivered
        case 1: .clicked
        default: .notShown
        }
    }
}

/// Receipts of OPPO: an array of `{"messageId","taskId","registrationIds","param","eventType"}`, as its page of receipts shows.
enum OPPOReceipts {
    static func read(_ value: JSONValue) -> [Receipt]? {
        guard value.kind == .array else { return nil }
        var receipts: [Receipt] = []
        for item in value.elements {
            guard let event = item["eventType"]?.string else { continue }
            let kind: Receipt.Kind
            switch event {
            case "push_arrive": kind = .delivered
            case "push_click": kind = .clicked
            case "regid_invalid": kind = .badToken
            default: kind = .notShown
            }
            let id = item["messageId"]?.lenientText ?? item["taskId"]?.lenientText ?? ""
            for token in ReceiptText.tokens(item["registrationIds"]) {
                receipts.append(
                    Receipt(
                        vendor: .oppo, token: token, messageID: ReceiptText.messageID(item["param"]?.string),
                        vendorID: PeerText.bounded(id), kind: kind, at: ReceiptText.time(item["eventTime"]),
                        reason: PeerText.bounded(event)))
                guard receipts.count <= Receipts.receiptCount else { return nil }
            }
        }
        return receipts
    }
}

private enum ReceiptText {
    /// Returns a message id of the gateway in lower case, or `nil` unless the text has 32 hexadecimal digits.
    static func messageID(_ text: String?) -> String? {
        guard let text, text.utf8.count == 32, text.utf8.allSatisfy(\.isHexDigit) else { return nil }
        return text.lowercased()
    }

    /// Returns the device tokens in a comma-separated text or an array, except those above the length limit.
    ///
    /// The result is `[nil]` if the receipt names no token.
    static func tokens(_ value: JSONValue?) -> [String?] {
        let texts =
            value?.string.map { $0.split(separator: ",").map(String.init) }
            ?? value?.elements.compactMap(\.string) ?? []
        let tokens = texts.map { String($0.drop { $0 == " " }) }.filter { !$0.isEmpty }
        return tokens.isEmpty ? [nil] : tokens.filter { $0.utf8.count <= Receipts.tokenByteCount }
    }

    /// Returns a time in Unix milliseconds, or 0 if the value is no integer or outside the years 2001 to 5138.
    static func time(_ value: JSONValue?) -> Int64 {
        guard let time = value?.lenientInteger, (1_000_000_000_000...100_000_000_000_000).contains(time) else {
            return 0
        }
        return time
    }
}
