internal import Delivery
internal import TextForms
internal import Wire

extension PublicAPI {
    func report(
        _ endpoint: PublicEndpoint, _ request: APIRequest, _ path: RequestPath, app: App, now: GatewayTime
    ) throws(GetuiFault) -> CampaignAction {
        switch endpoint {
        case .onlineReport: return .onlineReport(app.key)
        case .quotaReport: return .quotaReport(app.key)
        case .userDayReport: return .dayReport(try dayQuery(path.text(5), app: app, isAboutUsers: true, now: now))
        case .pushDayReport: return .dayReport(try dayQuery(path.text(5), app: app, isAboutUsers: false, now: now))
        case .groupReport: return .groupReport(try groupQuery(request, path.text(5), app: app, now: now))
        case .taskReport: return .taskReport(try taskReport(request, path[5], app: app, isDetailed: false))
        case .detailedTaskReport: return .taskReport(try taskReport(request, path[5], app: app, isDetailed: true))
        default: throw .notFound
        }
    }

    private func groupQuery(
        _ request: APIRequest, _ group: String, app: App, now: GatewayTime
    ) throws(GetuiFault) -> GroupReportQuery {
        try MessageParser.checkGroupName(group)
        let first = try day("startDate", of: request), last = try day("endDate", of: request)
        if let first, let last, first > last { throw .invalid("endDate", "it is before startDate") }
        try noteBrands(request)
        return GroupReportQuery(
            app: app.key, group: group, place: groupPlace(group, app: app), firstDay: first, lastDay: last,
            today: now / 86_400_000, notes: messages.notes)
    }

    /// Parses a query parameter as a day since 1970.
    private func day(_ name: String, of request: APIRequest) throws(GetuiFault) -> Int64? {
        guard let text = queryValue(name, of: request.target), !text.isEmpty else { return nil }
        guard let date = CivilDate(text), date.year >= 1970 else { throw .invalid(name, "yyyy-MM-dd") }
        return Int64(date.daysSince1970)
    }

    /// Notes Getui's parameter for numbers by Android brand, which is ignored.
    private func noteBrands(_ request: APIRequest) throws(GetuiFault) {
        switch queryValue("needGetuiByBrand", of: request.target)?.lowercased() {
        case nil, "", "false", "0": break
        case "true", "1": messages.notes.addIgnored("needGetuiByBrand")
        default: throw .type("needGetuiByBrand")
        }
    }

    private func taskReport(
        _ request: APIRequest, _ segment: ArraySlice<UInt8>, app: App, isDetailed: Bool
    ) throws(GetuiFault) -> TaskReportQuery {
        var query = TaskReportQuery(app: app.key, tasks: [], unknown: [], isDetailed: isDetailed, actions: [])
        var count = 0
        var seen = Set<TaskID>()
        for text in segment.split(separator: UInt8(ascii: ",")) {
            count += 1
            guard count <= app.bounds.reportedTasks else {
                throw .size("taskid", "at most \(app.bounds.reportedTasks)")
            }
            let name = String(decoding: text.prefix(64), as: UTF8.self)
            guard let task = TaskID(text: name) else {
                query.unknown.append(name)
                continue
            }
            if seen.insert(task).inserted { query.tasks.append(task) }
        }
        guard count > 0 else { throw .empty("taskid") }
        try noteBrands(request)
        query.notes = messages.notes
        if let list = queryValue("actionIdList", of: request.target) {
            for text in list.split(separator: ",") {
                if let action = UInt32(text) {
                    query.actions.insert(action)
                } else if query.unknownActions.count < Limits.reportedActionNames {
                    query.unknownActions.append(String(text.prefix(64)))
                }
            }
        }
        return query
    }

    /// Parses a past day; a day older than the reports is not an error, because the tests of Getui's PHP SDK request one.
    private func dayQuery(
        _ text: String, app: App, isAboutUsers: Bool, now: GatewayTime
    ) throws(GetuiFault) -> DayReportQuery {
        guard let date = CivilDate(text), date.year >= 1970 else { throw .invalid("date", "yyyy-MM-dd") }
        let day = Int64(date.daysSince1970)
        let today = now / 86_400_000
        guard day < today else { throw .invalid("date", "the day is not over (UTC)") }
        return DayReportQuery(
            app: app.key, date: text, day: UInt32(day), isAboutUsers: isAboutUsers,
            isKept: day >= today - Limits.reportDays)
    }
}

/// Returns the first query parameter whose name is not among `known`.
func unknownQueryName(in target: UnsafeRawBufferPointer, known: [StaticString]) -> String? {
    guard let mark = target.firstIndex(of: UInt8(ascii: "?")) else { return nil }
    for part in target[(mark + 1)...].split(separator: UInt8(ascii: "&")) {
        let name = String(decoding: part.prefix { $0 != UInt8(ascii: "=") }.prefix(64), as: UTF8.self)
        if !name.isEmpty, !known.contains(where: { "\($0)" == name }) { return name }
    }
    return nil
}

/// Returns the percent-decoded value of a query parameter; `nil` if it is absent.
func queryValue(_ name: String, of target: UnsafeRawBufferPointer) -> String? {
    guard let mark = target.firstIndex(of: UInt8(ascii: "?")) else { return nil }
    for part in target[(mark + 1)...].split(separator: UInt8(ascii: "&")) {
        guard let equals = part.firstIndex(of: UInt8(ascii: "=")) else { continue }
        guard part[..<equals].elementsEqual(name.utf8) else { continue }
        var bytes: [UInt8] = []
        var place = part.index(after: equals)
        while place < part.endIndex, part[place] != UInt8(ascii: "#") {
            if part[place] == UInt8(ascii: "%"), place + 2 < part.endIndex, let high = hexValue(part[place + 1]),
                let low = hexValue(part[place + 2])
            {
                bytes.append(high << 4 | low)
                place += 3
            } else {
                bytes.append(part[place])
                place += 1
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
    return nil
}
