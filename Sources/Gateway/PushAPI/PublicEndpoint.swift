/// The endpoints of the push listener; a new call needs a case, a line in `table`, its branch in `PublicAPI`, and its paragraph
/// in docs/use/openapi.yaml.
package enum PublicEndpoint: Sendable, Hashable {
    case healthz, readyz, check
    case authenticate, revokeToken
    case pushSingle, pushBatch, pushAlias, pushAliasBatch
    case createList, pushList, pushListToAliases
    case pushByTag, pushListByTag
    case pushToAll, pushToTags, pushToTag
    case stopTask, schedule, cancelSchedule, messageDetail
    case taskReport, detailedTaskReport, groupReport, pushDayReport, quotaReport, userDayReport, onlineReport
    case bindAliases, unbindAliases, unbindAlias, aliasOfDevice, devicesOfAlias
    case replaceTags, tagsOfDevice, addTag, removeTag
    case blacklist, unblacklist
    case userStatus, deviceStatus, userDetail, setBadge, countUsers
    case userBaseInfo, userAdvancedInfo, bindDeviceTokens
    case addTestDevices, updateTestDevice, deleteTestDevices, listTestDevices
    case uploadLog
    case receipt

    /// The accepted query parameters.
    var queryNames: [StaticString] {
        switch self {
        case .unbindAlias, .aliasOfDevice, .devicesOfAlias: ["alias_type"]
        case .taskReport, .detailedTaskReport: ["actionIdList", "needGetuiByBrand"]
        case .groupReport: ["startDate", "endDate", "needGetuiByBrand"]
        case .pushDayReport: ["needGetuiByBrand"]
        case .listTestDevices: ["cid", "remark", "pageNum", "pageSize"]
        default: []
        }
    }

    /// The most frequent routes are first.
    package static let table = RouteTable<PublicEndpoint>([
        .init("/v2/{appId}/push/single/cid", [.post(.pushSingle)]),
        .init("/v2/{appId}/push/list/cid", [.post(.pushList)]),
        .init("/v2/{appId}/push/single/batch/cid", [.post(.pushBatch)]),
        .init("/v2/{appId}/push/single/alias", [.post(.pushAlias)]),
        .init("/v2/{appId}/push/single/batch/alias", [.post(.pushAliasBatch)]),
        .init("/v2/{appId}/push/list/message", [.post(.createList)]),
        .init("/v2/{appId}/push/list/alias", [.post(.pushListToAliases)]),
        .init("/v2/{appId}/push/single/cid_by_tag", [.post(.pushByTag)]),
        .init("/v2/{appId}/push/list/cid_by_tag", [.post(.pushListByTag)]),
        .init("/v2/{appId}/push/all", [.post(.pushToAll)]),
        .init("/v2/{appId}/push/tag", [.post(.pushToTags)]),
        .init("/v2/{appId}/push/fast_custom_tag", [.post(.pushToTag)]),
        .init("/v2/{appId}/auth", [.post(.authenticate)]),
        .init("/v2/{appId}/auth/{token}", [.delete(.revokeToken)]),
        .init("/v2/{appId}/task/{taskId}", [.delete(.stopTask)]),
        .init("/v2/{appId}/task/schedule/{taskId}", [.get(.schedule), .delete(.cancelSchedule)]),
        .init("/v2/{appId}/task/detail/{cid}/{taskId}", [.get(.messageDetail)]),
        .init("/v2/{appId}/user/status/{cids}", [.get(.userStatus)]),
        .init("/v2/{appId}/user/deviceStatus/{cids}", [.get(.deviceStatus)]),
        .init("/v2/{appId}/user/detail/{cids}", [.get(.userDetail)]),
        .init("/v2/{appId}/user/alias", [.post(.bindAliases), .delete(.unbindAliases)]),
        .init("/v2/{appId}/user/alias/{alias}", [.delete(.unbindAlias)]),
        .init("/v2/{appId}/user/alias/cid/{cid}", [.get(.aliasOfDevice)]),
        .init("/v2/{appId}/user/cid/alias/{alias}", [.get(.devicesOfAlias)]),
        .init("/v2/{appId}/user/custom_tag/cid/{cid}", [.get(.tagsOfDevice), .post(.replaceTags)]),
        .init("/v2/{appId}/user/custom_tag/batch/{tag}", [.put(.addTag), .delete(.removeTag)]),
        .init("/v2/{appId}/user/black/cid/{cids}", [.post(.blacklist), .delete(.unblacklist)]),
        .init("/v2/{appId}/user/badge/cid/{cids}", [.post(.setBadge)]),
        .init("/v2/{appId}/user/count", [.post(.countUsers)]),
        .init("/v2/{appId}/user/info/base/{cids}", [.get(.userBaseInfo)]),
        .init("/v2/{appId}/user/info/advanced/{cids}", [.get(.userAdvancedInfo)]),
        .init("/v2/{appId}/user/bind_dt/{type}", [.post(.bindDeviceTokens)]),
        .init("/v2/{appId}/user/test/cid/add", [.post(.addTestDevices)]),
        .init("/v2/{appId}/user/test/cid/update", [.post(.updateTestDevice)]),
        .init("/v2/{appId}/user/test/cid/delete", [.post(.deleteTestDevices)]),
        .init("/v2/{appId}/user/test/cid/list", [.get(.listTestDevices)]),
        .init("/v2/{appId}/report/push/task/{taskIds}", [.get(.taskReport)]),
        .init("/v2/{appId}/report/push/task/{taskIds}/detail", [.get(.detailedTaskReport)]),
        .init("/v2/{appId}/report/push/task_group/{group}", [.get(.groupReport)]),
        .init("/v2/{appId}/report/push/date/{date}", [.get(.pushDayReport)]),
        .init("/v2/{appId}/report/push/count", [.get(.quotaReport)]),
        .init("/v2/{appId}/report/user/date/{date}", [.get(.userDayReport)]),
        .init("/v2/{appId}/report/online_user", [.get(.onlineReport)]),
        .init("/v2/{appId}/receipt", [.post(.receipt)]),
        .init("/v2/{appId}/log/upload", [.post(.uploadLog)]),
        .init("/v2/check", [.get(.check)]),
        .init("/healthz", [.get(.healthz)]),
        .init("/readyz", [.get(.readyz)]),
    ])
}
