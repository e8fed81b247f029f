import Testing

@testable import TextForms

@Suite("Civil dates")
struct CivilDateTests {
    /// The days were computed with Python's `datetime`; those outside its years by whole eras of 146,097 days.
    private static let known: [(days: Int, text: String)] = [
        (0, "1970-01-01"), (-1, "1969-12-31"), (11_016, "2000-02-29"), (11_017, "2000-03-01"),
        (-25_508, "1900-03-01"), (-25_509, "1900-02-28"), (19_781, "2024-02-28"), (19_782, "2024-02-29"),
        (47_540, "2100-02-28"), (47_541, "2100-03-01"), (2_932_896, "9999-12-31"), (-719_162, "0001-01-01"),
        (-719_163, "0000-12-31"), (-719_468, "0000-03-01"), (-719_469, "0000-02-29"), (-719_528, "0000-01-01"),
    ]

    @Test("known days are correct, also before 1970, in leap years and in the year 9999", arguments: known)
    func knownDays(days: Int, text: String) throws {
        #expect(CivilDate(daysSince1970: days).description == text)
        #expect(try #require(CivilDate(text)).daysSince1970 == days)
    }

    @Test("each day has the date after the previous one, and leads back to its number")
    func everyDay() {
        var before = CivilDate(daysSince1970: -720_000)
        for days in -719_999...100_000 {
            let date = CivilDate(daysSince1970: days)
            let isNextDay = date.year == before.year && date.month == before.month && date.day == before.day + 1
            let isNextMonth = date.year == before.year && date.month == before.month + 1 && date.day == 1
            let isNextYear = date.year == before.year + 1 && date.month == 1 && date.day == 1 && before.day == 31
            guard isNextDay || isNextMonth || isNextYear, date.daysSince1970 == days,
                CivilDate(year: date.year, month: date.month, day: date.day) == date
            else {
                Issue.record("day \(days): \(date) after \(before)")
                return
            }
            before = date
        }
    }

    @Test("years before 0 and after 9999 lead back to their number")
    func farYears() {
        for days in [-1_000_000_000, -800_000, 2_932_897, 1_000_000_000] {
            #expect(CivilDate(daysSince1970: days).daysSince1970 == days)
        }
        #expect(CivilDate(daysSince1970: -719_529) == CivilDate(year: -1, month: 12, day: 31))
        #expect(CivilDate(daysSince1970: 2_932_897).description == "10000-01-01")
    }

    @Test(
        "an impossible day and another form are refused",
        arguments: [
            "", "2023", "2023-02-29", "1900-02-29", "2100-02-29", "2023-04-31", "2023-00-10", "2023-13-01",
            "2023-01-00", "2023-01-32", "23-02-09", "2023-1-01", "2023-01-1", "2023/01/01", "2023-01-01 ",
            " 2023-01-01", "+023-01-01", "-023-01-01", "2023--1-01", "2023-01-0x", "20233-1-01", "２０２３-01-01",
        ])
    func refused(text: String) { #expect(CivilDate(text) == nil) }

    @Test(
        "a time is split towards the past",
        arguments: [
            (0, "1970-01-01T00:00:00.000Z", 4), (-1, "1969-12-31T23:59:59.999Z", 3),
            (-86_400_000, "1969-12-31T00:00:00.000Z", 3), (-86_400_001, "1969-12-30T23:59:59.999Z", 2),
            (951_782_400_123, "2000-02-29T00:00:00.123Z", 2), (1_700_000_000_000, "2023-11-14T22:13:20.000Z", 2),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z", 1), (253_402_300_799_999, "9999-12-31T23:59:59.999Z", 5),
        ] as [(Int64, String, Int)])
    func times(milliseconds: Int64, text: String, weekday: Int) {
        let time = CivilTime(millisecondsSince1970: milliseconds)
        #expect(time.timestamp == text)
        #expect(time.weekday == weekday)
        #expect(CivilDate(millisecondsSince1970: milliseconds) == time.date)
    }

    @Test("the first and the last possible millisecond do not trap")
    func extremes() {
        #expect(CivilTime(millisecondsSince1970: .max).timestamp == "292278994-08-17T07:12:55.807Z")
        #expect(CivilTime(millisecondsSince1970: .min).date == CivilDate(year: -292_275_055, month: 5, day: 16))
    }
}
