// The Gregorian calendar in UTC, in both directions, without a C library and without a clock.

/// One day of the Gregorian calendar, which also counts for the days before it was introduced.
package struct CivilDate: Equatable, Sendable, CustomStringConvertible {
    /// The year 0 is the year before year 1.
    package let year: Int
    /// 1 to 12.
    package let month: Int
    /// 1 to 31.
    package let day: Int

    /// The date of a day, counted from 1 January 1970; negative before it.
    ///
    /// - Parameter days: at most 10^17 on either side.
    package init(daysSince1970 days: Int) {
        // The years of this computation start on 1 March, so that the leap day comes last. 719,468 days lie between
        // 1 March of year 0 and 1970, and an era of 400 years has 146,097.
        let (era, dayOfEra) = (days + 719_468).floorDivided(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153  // March is 0
        day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
        month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    }

    /// The date of a time in milliseconds since 1970.
    package init(millisecondsSince1970 time: Int64) {
        self.init(daysSince1970: Int(time).floorDivided(by: CivilTime.millisecondsOfDay).quotient)
    }

    /// Reads `yyyy-MM-dd`; `nil` for another form and for a day that the calendar does not have.
    package init?(_ text: String) {
        let bytes = Array(text.utf8)
        let dash = UInt8(ascii: "-")
        guard bytes.count == 10, bytes[4] == dash, bytes[7] == dash, let year = Self.number(bytes[..<4]),
            let month = Self.number(bytes[5..<7]), let day = Self.number(bytes[8...])
        else { return nil }
        self.init(year: year, month: month, day: day)
    }

    /// `nil` for a day that the calendar does not have.
    package init?(year: Int, month: Int, day: Int) {
        guard (1...12).contains(month), day >= 1, day <= Self.dayCount(ofMonth: month, year: year) else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
    }

    /// The days from 1 January 1970 to this one; negative before it.
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

/// A moment in UTC, as people write it.
package struct CivilTime: Equatable, Sendable {
    package let date: CivilDate
    package let hour: Int
    package let minute: Int
    package let second: Int
    package let millisecond: Int
    /// 0 is Sunday.
    package let weekday: Int

    fileprivate static let millisecondsOfDay = 86_400_000

    /// The moment of a time in milliseconds; negative before 1970.
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

/// A number with zeros in front, up to `width` characters.
private func padded(_ number: Int, _ width: Int) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
}

extension Int {
    /// The quotient towards negative infinity, so that the remainder is never negative.
    fileprivate func floorDivided(by divisor: Int) -> (quotient: Int, remainder: Int) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
