internal import TextForms

struct HTTPAnswer {
    var status: Int
    /// The content type, or empty for none; it must be trusted text.
    var contentType: String
    var headers: [(name: String, value: String)]
    var body: UnsafeRawBufferPointer
    /// Whether the body is sent; it is `false` for HEAD, whose response has the length only.
    var showsBody: Bool
    var isLast: Bool
    var isHTTP10: Bool

    var sentBody: UnsafeRawBufferPointer {
        showsBody && status != 204 ? body : UnsafeRawBufferPointer(start: nil, count: 0)
    }

    func withHead<Result>(date: HTTPDate, _ send: (UnsafeRawBufferPointer) -> Result) -> Result {
        let plain = headers.filter { Self.isPlain($0.name) && Self.isPlain($0.value) }
        let texts = plain.reduce(contentType.utf8.count) { $0 + $1.name.utf8.count + $1.value.utf8.count + 4 }
        return withUnsafeTemporaryAllocation(byteCount: texts + 256, alignment: 1) { room in
            var writer = Writer(room: room)
            writer.put("HTTP/1.1 ")
            writer.put(status)
            writer.put(" ")
            writer.put(Self.reason(status))
            writer.put("\r\nDate: ")
            writer.put(date.bytes)
            if !contentType.isEmpty {
                writer.put("\r\nContent-Type: ")
                writer.put(contentType)
            }
            for header in plain {
                writer.put("\r\n")
                writer.put(header.name)
                writer.put(": ")
                writer.put(header.value)
            }
            if status != 204 {
                writer.put("\r\nContent-Length: ")
                writer.put(body.count)
            }
            if isLast {
                writer.put("\r\nConnection: close")
            } else if isHTTP10 {
                writer.put("\r\nConnection: keep-alive")
            }
            writer.put("\r\n\r\n")
            return send(UnsafeRawBufferPointer(rebasing: room[..<writer.count]))
        }
    }

    /// Returns whether the text has no line break, which would start another header.
    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 9 } }

    static func reason(_ status: Int) -> StaticString {
        switch status {
        case 200: "OK"
        case 201: "Created"
        case 202: "Accepted"
        case 204: "No Content"
        case 302: "Found"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 409: "Conflict"
        case 413: "Content Too Large"
        case 414: "URI Too Long"
        case 415: "Unsupported Media Type"
        case 417: "Expectation Failed"
        case 426: "Upgrade Required"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 500: "Internal Server Error"
        case 501: "Not Implemented"
        case 503: "Service Unavailable"
        case 505: "HTTP Version Not Supported"
        default: status < 400 ? "OK" : status < 500 ? "Bad Request" : "Internal Server Error"
        }
    }

    private struct Writer {
        let room: UnsafeMutableRawBufferPointer
        var count = 0

        mutating func put(_ bytes: UnsafeRawBufferPointer) {
            UnsafeMutableRawBufferPointer(rebasing: room[count...]).copyMemory(from: bytes)
            count += bytes.count
        }

        mutating func put(_ text: StaticString) {
            put(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
        }

        mutating func put(_ text: String) {
            var text = text
            text.withUTF8 { put(UnsafeRawBufferPointer($0)) }
        }

        mutating func put(_ number: Int) {
            precondition(number >= 0, "neither a status nor a length is negative")
            var digits = 1
            var rest = number
            while rest >= 10 { (digits, rest) = (digits + 1, rest / 10) }
            rest = number
            for place in (count..<count + digits).reversed() {
                room[place] = 0x30 + UInt8(rest % 10)
                rest /= 10
            }
            count += digits
        }
    }
}

/// The text of the header `Date` (RFC 9110, section 5.6.7).
struct HTTPDate {
    let bytes: UnsafeRawBufferPointer
}

/// A server's cache of the date, which is formatted at most once per second.
struct HTTPDateCache: ~Copyable {
    private static let byteCount = 29
    private let text = UnsafeMutableRawBufferPointer.allocate(byteCount: HTTPDateCache.byteCount + 1, alignment: 1)
    private var second: UInt64 = .max

    deinit { text.deallocate() }

    mutating func date(atSecond new: UInt64) -> HTTPDate {
        if new != second {
            second = new
            let time = CivilTime(millisecondsSince1970: Int64(new) * 1_000)
            let days: StaticString = "SunMonTueWedThuFriSat"
            let months: StaticString = "JanFebMarAprMayJunJulAugSepOctNovDec"
            put(days, time.weekday, at: 0)
            put(", ", at: 3)
            put(time.date.day, digits: 2, at: 5)
            put(" ", at: 7)
            put(months, time.date.month - 1, at: 8)
            put(" ", at: 11)
            put(time.date.year, digits: 4, at: 12)
            put(" ", at: 16)
            put(time.hour, digits: 2, at: 17)
            put(":", at: 19)
            put(time.minute, digits: 2, at: 20)
            put(":", at: 22)
            put(time.second, digits: 2, at: 23)
            put(" GMT", at: 25)
        }
        return HTTPDate(bytes: UnsafeRawBufferPointer(start: text.baseAddress, count: Self.byteCount))
    }

    private func put(_ words: StaticString, _ index: Int, at place: Int) {
        for offset in 0..<3 { text[place + offset] = words.utf8Start[index * 3 + offset] }
    }

    private func put(_ word: StaticString, at place: Int) {
        for offset in 0..<word.utf8CodeUnitCount { text[place + offset] = word.utf8Start[offset] }
    }

    private func put(_ number: Int, digits: Int, at place: Int) {
        var rest = number
        for offset in (0..<digits).reversed() {
            text[place + offset] = 0x30 + UInt8(rest % 10)
            rest /= 10
        }
    }
}
