/// Dates in HTTP's `Date` format: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7).
package enum HTTPDate {
    private static let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    package static func text(secondsSince1970 time: Int64) -> String {
        let moment = CivilTime(millisecondsSince1970: time * 1_000)
        let date = moment.date
        let day = date.day < 10 ? "0\(date.day)" : "\(date.day)"
        return "\(days[moment.weekday]), \(day) \(months[date.month - 1]) \(date.year) \(moment.clock) GMT"
    }

    /// Parses this format; the result is `nil` for any other one, including HTTP's two obsolete formats.
    package static func secondsSince1970(_ text: some Sequence<UInt8>) -> Int64? {
        let parts = String(decoding: Array(text), as: UTF8.self).split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0].hasSuffix(","), days.contains(String(parts[0].dropLast())), parts[5] == "GMT",
            let day = number(parts[1], width: 2), let month = months.firstIndex(of: String(parts[2])),
            let year = number(parts[3], width: 4),
            let date = CivilDate(year: year, month: month + 1, day: day)
        else { return nil }
        let clock = parts[4].split(separator: ":", omittingEmptySubsequences: false)
        guard clock.count == 3, let hour = number(clock[0], width: 2), hour < 24,
            let minute = number(clock[1], width: 2), minute < 60,
            // Seconds may be 60 because of leap seconds.
            let second = number(clock[2], width: 2), second <= 60
        else { return nil }
        return Int64(date.daysSince1970) * 86_400 + Int64(hour * 3_600 + minute * 60 + second)
    }

    private static func number(_ text: Substring, width: Int) -> Int? {
        guard text.utf8.count == width, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else { return nil }
        return Int(text)
    }
}
