/// A date of the Gregorian calendar in UTC, extended to the time before its introduction.
package struct CivilDate: Equatable, Sendable, CustomStringConvertible {
    /// The year; 0 is the year before year 1.
    package let year: Int
    /// 1 to 12.
    package let month: Int
    /// 1 to 31.
    package let day: Int

    /// Creates the date of a day counted from 1 January 1970, negative for earlier days.
    ///
    /// - Parameter days: between -10^17 and 10^17.
    package init(daysSince1970 days: Int) {
        // Years start on 1 March in this computation, so the leap day is the last day. 1 March of year 0 is 719,468 days before
        // 1970. An era of 400 years has 146,097 days.
        let (era, dayOfEra) = (days + 719_468).floorDivided(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153  // March is 0
        day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
        month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    }

    package init(millisecondsSince1970 time: Int64) {
        self.init(daysSince1970: Int(time).floorDivided(by: CivilTime.millisecondsOfDay).quotient)
    }

    /// Parses `yyyy-MM-dd`; the result is `nil` for another form or a date that does not exist.
    package init?(_ text: String) {
        let bytes = Array(text.utf8)
        let dash = UInt8(ascii: "-")
        guard bytes.count == 10, bytes[4] == dash, bytes[7] == dash, let year = Self.number(bytes[..<4]),
            let month = Self.number(bytes[5..<7]), let day = Self.number(bytes[8...])
        else { return nil }
        self.init(year: year, month: month, day: day)
    }

    /// Fails if the date does not exist.
    package init?(year: Int, month: Int, day: Int) {
        guard (1...12).contains(month), day >= 1, day <= Self.dayCount(ofMonth: month, year: year) else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
    }

    /// The number of days since 1 January 1970, negative for earlier dates.
    package var daysSince1970: Int {
        let (era, yearOfEra) = (month <= 2 ? year - 1 : year).floorDivided(by: 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
        return era * 146_097 + dayOfEra - 719_468
    }

    /// `yyyy-MM-dd`.
    package var description: String { "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))" }

    private static func dayCount(ofMonth month: Int, year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> Int? {
        var number = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            number = number * 10 + Int(digit - UInt8(ascii: "0"))
        }
        return number
    }
}

/// A point in time in UTC, split into calendar fields.
package struct CivilTime: Equatable, Sendable {
    package let date: CivilDate
    package let hour: Int
    package let minute: Int
    package let second: Int
    package let millisecond: Int
    /// The day of the week; 0 is Sunday.
    package let weekday: Int

    fileprivate static let millisecondsOfDay = 86_400_000

    /// Creates the calendar fields of a time, negative before 1970.
    package init(millisecondsSince1970 time: Int64) {
        let (days, millisecondOfDay) = Int(time).floorDivided(by: Self.millisecondsOfDay)
        date = CivilDate(daysSince1970: days)
        hour = millisecondOfDay / 3_600_000
        minute = millisecondOfDay / 60_000 % 60
        second = millisecondOfDay / 1_000 % 60
        millisecond = millisecondOfDay % 1_000
        weekday = (days + 4).floorDivided(by: 7).remainder  // 1 January 1970 was a Thursday
    }

    /// `HH:mm:ss`.
    package var clock: String { "\(padded(hour, 2)):\(padded(minute, 2)):\(padded(second, 2))" }

    /// ISO 8601 with milliseconds: `yyyy-MM-ddTHH:mm:ss.SSSZ`.
    package var timestamp: String { "\(date)T\(clock).\(padded(millisecond, 3))Z" }
}

private func padded(_ number: Int, _ width: Int) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
}

extension Int {
    /// Divides rounding down, so that the remainder is never negative.
    fileprivate func floorDivided(by divisor: Int) -> (quotient: Int, remainder: Int) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
