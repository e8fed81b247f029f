// All texts of the console, in English and Chinese.

const TEXTS = {
  __proto__: null,
  console: ["Console", "控制台"],
  skip: ["Skip to the content", "跳到正文"],
  overview: ["Overview", "总览"],
  devices: ["Devices", "设备"],
  messages: ["Messages", "消息"],
  tasks: ["Tasks", "任务"],
  handoff: ["Handoff queue", "移交队列"],
  cluster: ["Cluster", "集群"],
  send: ["Send a test", "发送测试"],
  signIn: ["Sign in", "登录"],
  signOut: ["Sign out", "退出登录"],
  tokenLabel: ["Token of a credential", "凭证令牌"],
  tokenHint: ["One of credentials[] in the configuration, or the one that a first start prints. It stays in this tab.",
    "配置文件 credentials[] 中的一个，或首次启动时打印的令牌。只保存在本标签页。"],
  language: ["中文", "English"],
  theme: ["Dark or light", "深色或浅色"],
  signedOut: ["The gateway did not take this token. Sign in again.", "网关不接受此令牌，请重新登录。"],
  forbidden: ["This credential may not do that: {0}", "此凭证没有权限：{0}"],
  lacks: ["credential {0} lacks the permission {1}", "凭证 {0} 缺少 {1} 权限"],
  noAnswer: ["The gateway does not answer. The page asks again by itself.", "网关没有响应，页面会自动重试。"],
  refused: ["The gateway refused: {0}", "网关拒绝：{0}"],
  ask: ["Look up", "查询"],
  asking: ["Asking…", "查询中…"],
  close: ["Close", "关闭"],
  cancel: ["Cancel", "取消"],
  yes: ["Yes, do it", "确认执行"],
  none: ["none", "无"],
  yesWord: ["yes", "是"],
  noWord: ["no", "否"],
  never: ["never", "从未"],
  app: ["App", "应用"],
  cid: ["Device (cid)", "设备（cid）"],
  cidHint: ["32 hexadecimal digits", "32 位十六进制数字"],
  msgId: ["Message (msgId)", "消息（msgId）"],

  ready: ["ready", "就绪"], starting: ["starting", "启动中"], stopping: ["stopping", "停止中"],
  storeBusy: ["not accepting", "暂不接收"],
  state: ["State", "状态"],
  uptime: ["up for {0}", "已运行 {0}"],
  sessions: ["Devices connected", "在线设备"],
  reachable: ["{0} get messages at once", "{0} 台可立即收到"],
  acceptedRate: ["Accepted a second", "每秒接收"],
  acceptedTotal: ["{0} since the start", "启动以来 {0} 条"],
  pending: ["Waiting to be delivered", "待投递"],
  due: ["Due for a vendor", "待厂商领取"],
  underLease: ["{0} under lease", "{0} 条已被领取"],
  answerTime: ["HTTP answers, p99", "HTTP 响应 p99"],
  median: ["median {0}", "中位数 {0}"],
  idle: ["no requests now", "当前没有请求"],
  plotMessages: ["Messages a second", "每秒消息"],
  accepted: ["accepted", "已接收"],
  live: ["delivered live", "在线送达"],
  offline: ["delivered on return", "上线后送达"],
  vendor: ["taken by a vendor", "厂商接收"],
  plotSessions: ["Connections", "连接"],
  deviceSessions: ["devices", "设备"],
  httpConnections: ["HTTP", "HTTP"],
  plotTimes: ["Times, p99", "耗时 p99"],
  httpTime: ["HTTP answer", "HTTP 响应"],
  commitTime: ["group commit", "组提交"],
  plotQueues: ["Waiting", "等待中"],
  pendingMessages: ["messages", "消息"],
  dueJobs: ["handoff jobs due", "可领取任务"],
  attention: ["What needs attention", "需要关注"],
  allWell: ["Nothing that the gateway counts asks for attention.", "没有需要关注的指标。"],
  adviceStore: ["Publishes are refused as busy: a bound of the store is reached, or its disk or Redis does not follow. Look at free room and at commit times.",
    "存储达到上限，或磁盘、Redis 跟不上，推送被暂时拒绝。请检查剩余空间和提交耗时。"],
  adviceHook: ["The hook's receiver fails; its last status is {0}. Jobs wait and are offered again.", "Hook 接收方异常，最近状态 {0}；任务会等待并重试。"],
  adviceClock: ["The clock stands more than an hour ahead and is not followed. Mend the machine's time synchronisation.",
    "系统时钟超前一小时以上，网关未跟随。请修复时间同步。"],
  adviceClockOffset: ["The machine's clock less the gateway's time is {0} s; the gateway follows by 3 s a minute. If the clock is right and ahead, a restart takes it at once.",
    "系统时钟与网关时间相差 {0} 秒，网关每分钟追赶 3 秒。如果系统时钟正确且超前，重启网关立即采用它。"],
  adviceRefused: ["Publishes are refused now ({0} a second): {1}.", "推送正在被拒绝（每秒 {0} 条）：{1}。"],
  adviceDue: ["{0} handoff jobs are due and nobody leases them. Is the sender service running?", "{0} 条移交任务可领取但无人领取。发送服务在运行吗？"],
  adviceExhausted: ["Handoff jobs are given up after all attempts ({0} in the last minutes).", "移交任务重试用尽被放弃（最近几分钟 {0} 条）。"],
  adviceBadToken: ["The vendor does not know device tokens any more ({0} in the last minutes).", "厂商报告设备令牌失效（最近几分钟 {0} 个）。"],
  adviceTurnedAway: ["Connections are turned away: limits.connections or the open files are used up.", "连接被拒绝：limits.connections 或文件描述符已用尽。"],
  adviceReadiness: ["The gateway says it is not ready: {0}.", "网关报告未就绪：{0}。"],
  apps: ["Apps", "应用"],
  appSource: ["From", "来源"],
  fileApp: ["file", "配置文件"],
  apiApp: ["admin API", "管理接口"],
  enabledApp: ["enabled", "启用"],
  disabledApp: ["disabled", "停用"],
  appsAll: ["All apps", "全部应用"],
  appId: ["appId", "appId"],
  appIdHint: ["Letters, digits, “_”, “.” and “-”, at most 64. It stays.", "字母、数字、“_”、“.”、“-”，最多 64 个字符；创建后不能修改。"],
  appNew: ["New app", "新建应用"], appMake: ["Make the app", "创建"],
  apnsTopic: ["APNs topic, if it has one", "APNs topic（可选）"],
  apnsTopicHint: ["The bundle identifier of the app on iPhones", "iOS 应用的 Bundle ID"],
  appSettings: ["Settings", "设置"], appSettingsOf: ["Settings of {0}", "{0} 的设置"],
  appSettingsHint: ["JSON, with the keys of apps[] in the configuration (docs/use/Operations.md). A key that is missing has its default.",
    "JSON，键与配置文件的 apps[] 相同（见 docs/use/Operations.md）；没有写的键取默认值。"],
  notJSON: ["This is no JSON object. {0}", "不是 JSON 对象。{0}"],
  appCreated: ["The app {0} is served now", "应用 {0} 已创建并开始服务"], appWasThere: ["There is such an app {0} already", "已有相同的应用 {0}"],
  appCreatedAt: ["Made", "创建时间"], appChangedAt: ["Changed", "修改时间"],
  appOfFile: ["This app stands in the configuration file. Change it there and send the gateway SIGHUP.", "此应用来自配置文件：请修改文件，再向网关发送 SIGHUP。"],
  appChange: ["Change", "修改"], appChanged: ["The app has its new settings.", "新设置已生效。"], appUnchanged: ["Nothing was changed.", "没有改动。"],
  appChangeSure: ["Change the settings of app {0}? The change: {1}", "修改应用 {0} 的设置？改动：{1}"],
  appDisable: ["Disable", "停用"], appEnable: ["Enable", "启用"], appDelete: ["Delete", "删除"],
  appDisableSure: ["Stop serving app {0}? Its devices are disconnected and its calls refused. Queued messages stay until their TTL ends.",
    "停用应用 {0}？其设备会断开，接口调用会被拒绝；排队消息保留到各自的有效期。"],
  appEnableSure: ["Serve app {0} again? Its devices come back within 15 minutes.", "重新启用应用 {0}？其设备会在 15 分钟内陆续重连。"],
  appDeleteSure: ["Delete app {0} with its secrets? This cannot be undone.", "删除应用 {0} 及其密钥？此操作无法撤销。"],
  secretHolds: ["one holds", "一个有效"], secretUntil: ["an older one holds until {0}", "一个旧密钥有效至 {0}"],
  secretRotate: ["New secret", "更换密钥"], secretWhich: ["Which secret", "哪个密钥"],
  overlap: ["The old one holds for", "旧密钥继续有效"], overlapDefault: ["the default", "默认时间"], overlapNone: ["no time: it ends at once", "立即失效"],
  overlapHint: ["By default 90 days of an appSecret, a day of a masterSecret", "默认：appSecret 90 天，masterSecret 1 天"],
  rotateSure: ["Make a new {0} for app {1}? The old one still holds for the chosen time.", "为应用 {1} 生成新的 {0}？旧密钥在所选时间内仍然有效。"],
  rotateHardSure: ["Make a new {0} for app {1} and end the old one at once? Who uses the old one is refused.", "为应用 {1} 生成新的 {0}，旧密钥立即失效？仍用旧密钥的一方会被拒绝。"],
  secretRotated: ["The new {0} holds now", "新的 {0} 已生效"],
  secretsKept: ["I have kept them", "已保存"],
  secretsOnce: ["Keep them now: the gateway shows them this once and never again.", "请立即保存：密钥只显示这一次。"],
  copy: ["Copy", "复制"], copied: ["Copied", "已复制"],
  plotFeeds: ["Waiting for the app's server", "等待业务服务器读取"],
  feedUpstream: ["upstream unread", "上行未读"], feedEvents: ["events unread", "事件未读"],
  plotFeedWait: ["Oldest item's wait", "最旧条目已等待"],
  feedUpstreamWait: ["oldest upstream", "最旧上行"], feedEventsWait: ["oldest event", "最旧事件"],
  plotStored: ["On disk at this gateway, by counts", "本网关的磁盘占用（按计数）"], queuedBytes: ["queued", "排队"], storedBytes: ["in all", "合计"],
  quotas: ["Quotas", "配额"], quota: ["Quota", "配额"], quotaUsed: ["Used", "已用"], quotaLimit: ["Limit", "上限"],
  quotaShare: ["This gateway's share", "本网关份额"], quotaRefused: ["Refused since the start", "启动以来拒绝"],
  quotaDevices: ["Connected devices", "在线设备"], quotaPublishesPerSecond: ["Publishes a second", "每秒推送"],
  quotaRequestBytesPerSecond: ["Request bytes a second", "每秒请求字节"], quotaQueuedMessages: ["Queued messages", "排队消息"],
  quotaQueuedBytes: ["Queued bytes", "排队字节"], quotaStoredBytes: ["Bytes on disk", "磁盘字节"],
  appsEmpty: ["No app has figures that this credential may see.", "此凭证看不到任何应用的数据。"],
  appConnected: ["connected", "在线"],
  appAcceptedRate: ["accepted a second", "每秒接收"],
  appAccepted: ["accepted", "已接收"],
  appUndelivered: ["ended undelivered", "未送达结束"],
  appDue: ["jobs due", "可领取任务"],
  refusals: ["Refused publishes since the start", "启动以来被拒绝的推送"],
  refusalsEmpty: ["None.", "无。"],
  reason: ["Reason", "原因"],
  count: ["Count", "数量"],

  deviceUnknown: ["This app has no such device. It may have been collected, or the cid belongs to another app.",
    "该应用没有此设备：可能已被回收，或 cid 属于其他应用。"],
  session: ["Session", "会话"],
  connected: ["connected", "在线"],
  disconnected: ["not connected", "离线"],
  suspect: ["suspect: it missed an ack", "可疑：未按时确认"],
  notReachable: ["connected, gets nothing now", "在线但暂不接收"],
  appState: ["App is in", "应用处于"],
  foreground: ["the foreground", "前台"], background: ["the background", "后台"], terminated: ["no state: it was ended", "已终止"],
  lastSeen: ["Last seen", "最后在线"],
  registered: ["Registered", "注册时间"],
  heartbeat: ["Heartbeat", "心跳"],
  seconds: ["{0} s", "{0} 秒"],
  queue: ["Queue", "队列"],
  queueText: ["{0} waiting, {1}; {2} sent and not acked", "{0} 条，{1}；{2} 条已发送未确认"],
  badgeNumber: ["Badge", "角标"],
  fallback: ["Vendor alert", "厂商通道"],
  fallbackAvailable: ["possible", "可用"],
  fallbackDue: ["an alert is due now", "立即可领取"], fallbackArmed: ["after the live attempt, if that fails", "在线投递未成功时"],
  fallbackNone: ["not possible: {0}", "不可用：{0}"],
  bucket: ["Bucket", "分桶"],
  pushModeOff: ["Push switched off by its user", "用户已关闭推送"],
  tokens: ["Vendor tokens", "厂商令牌"],
  tokensEmpty: ["None: no alert can reach it while it is not connected.", "无：离线时无法通过厂商提醒。"],
  channel: ["Channel", "通道"], kind: ["Kind", "类型"], environment: ["Environment", "环境"], topic: ["Topic", "主题"], tokenWord: ["Token", "令牌"],
  quarantined: ["quarantined", "已隔离"], usable: ["usable", "可用"],
  vendorFailure: ["The vendor's last refusal", "厂商最近一次拒绝"],
  when: ["Time", "时间"],
  sendTo: ["Send it a test message", "向它发送测试消息"],
  whyNoToken: ["it has no token", "没有令牌"],
  whyTokenMoved: ["another device of the app registered its token since", "它的令牌后来被该应用的另一个设备登记"], whyPushModeOff: ["push is switched off", "推送已关闭"],
  whyBlacklisted: ["it is on the blacklist", "在黑名单中"], whyInactive: ["it was not seen for a long time", "长期未上线"],
  whyNoContent: ["the push has no vendor content", "推送没有厂商内容"], whyStrategy: ["the strategy is live only", "策略为仅在线"], whyTtl: ["its TTL is 0", "TTL 为 0"],

  queueLimit: ["The queue may hold", "队列上限"],
  queueLimitText: ["{0} messages, {1}", "{0} 条，{1}"],
  aliases: ["Aliases", "别名"], tags: ["Tags", "标签"],
  blacklist: ["On the blacklist", "在黑名单中"], inactiveDevice: ["Not seen for too long: publishes make no message", "长期未上线：推送不生成消息"],
  recentMessages: ["Its newest messages", "最近的消息"],
  recentEmpty: ["None is queued, and none ended in the last day.", "队列为空，最近一天也没有结束的消息。"],

  taskName: ["Task, request id or alias", "任务 ID、请求 ID 或别名"],
  taskNameHint: ["A taskId begins with RASS_, RASL_ or RASA_", "taskId 以 RASS_、RASL_ 或 RASA_ 开头"],
  taskUnknown: ["The gateway knows no such task, request or alias of this app. It keeps requests for a day.",
    "该应用没有此任务、请求或别名。请求记录保留一天。"],
  singlePush: ["A push to one device", "单推"],
  kindOfTask: ["Kind", "类型"], listTask: ["list", "批量推送"], broadcastTask: ["broadcast", "群推"], aliasTask: ["push to an alias", "别名推送"],
  taskGroup: ["Group", "任务组"], scheduledAt: ["Scheduled for", "定时时间"],
  taskOpen: ["open", "进行中"], taskScheduled: ["scheduled", "已定时"], taskRunning: ["being sent", "发送中"], taskStopping: ["stopping", "停止中"],
  taskStopped: ["stopped", "已停止"], taskCancelled: ["cancelled before it was sent", "发送前已取消"], taskEnding: ["ending", "结束中"], taskEnded: ["ended", "已结束"],
  report: ["Report", "报表"], reportEmpty: ["No device has a message of it yet.", "还没有设备收到该任务的消息。"], shareWord: ["Share", "占比"],
  failures: ["Why messages failed", "失败原因"], callWord: ["Call", "接口"],
  aliasDevices: ["Devices of the alias {0}", "别名 {0} 的设备"],
  refusedPublishes: ["Publishes that were refused", "被拒绝的推送"],
  refusedQueueFull: ["the device's queue is full", "设备队列已满"], refusedBlacklisted: ["it is on the blacklist", "在黑名单中"],
  refusedInactive: ["it was not seen for a long time", "长期未上线"], refusedNoToken: ["it has no token", "没有令牌"],
  refusedNoContent: ["the push has no vendor content", "推送没有厂商内容"], refusedUnknownDevice: ["the app has no such device", "应用没有此设备"],
  refusedRequestConflict: ["the request id was used for another push", "请求 ID 已用于其他推送"], refusedStopped: ["the task was stopped", "任务已停止"],
  refusedTooLarge: ["the message is too large", "消息过大"],

  messageUnknown: ["No such message, or its trace is older than a day.", "没有此消息，或其轨迹已超过一天。"],
  pendingState: ["on its way", "投递中"],
  stateDelivered: ["delivered live", "在线送达"], stateDeliveredOffline: ["delivered on the device's return", "上线后送达"],
  stateOpened: ["opened by the user", "用户已打开"], stateHandedOff: ["handed to the vendor", "已交厂商"], stateExpired: ["expired before it could be delivered", "送达前过期"],
  stateCollapsed: ["replaced by a newer message", "被新消息覆盖"], stateRevoked: ["revoked", "已撤回"], stateOverflowed: ["dropped: the device's queue was full", "队列已满被丢弃"],
  stateFailed: ["failed", "失败"],
  task: ["Task", "任务"], strategy: ["Strategy", "策略"], attempts: ["Attempts at the vendor", "厂商尝试次数"],
  acceptedAt: ["Accepted", "接收时间"], expiresAt: ["Expires", "过期时间"], vendorSaid: ["The vendor said", "厂商回应"],
  timeline: ["What became of it", "投递过程"],
  stepAccepted: ["The gateway accepted it; it is durable.", "网关已接收并持久化。"],
  stepSent: ["The gateway sent it over the device's connection.", "网关通过长连接发送给设备。"],
  stepTimedOut: ["The device did not ack it in time.", "设备未在期限内确认。"],
  stepJobDue: ["Its handoff job became due: a sender may lease it.", "移交任务立即可领取。"],
  stepLeased: ["A sender leased the job.", "发送服务领取了任务。"],
  stepLeaseLapsed: ["The sender did not answer before its lease ended.", "发送服务在租约内没有回报。"],
  stepVendorAccepted: ["The vendor took it.", "厂商已接收。"],
  stepVendorRetry: ["The vendor asked for another attempt.", "厂商要求重试。"],
  stepUnsent: ["The sender gave the job back without offering it to the vendor.", "发送服务未提交厂商即退回任务。"],
  stepVendorRejected: ["The vendor refused it for good.", "厂商最终拒绝。"],
  stepBadToken: ["The vendor does not know the device's token any more.", "厂商报告令牌失效。"],
  stepExhausted: ["All attempts at the vendor failed.", "厂商重试次数用尽。"],
  stepCancelled: ["The handoff job ended with the message.", "消息结束，移交任务取消。"],
  stepAlertedTwice: ["The vendor took it after the device had already got it.", "设备已收到后厂商又接收了一次。"],
  stepOpened: ["The user opened the notification.", "用户打开了通知。"],
  stepShown: ["The notification was shown.", "通知已展示。"],
  stepAcked: ["The device acked it.", "设备已确认。"],
  stepEnded: ["Its final state was written.", "最终状态已写入。"],
  stepAction: ["The app reported an action of its own.", "应用上报了自定义动作。"],

  leased: ["Under lease", "已被领取"],
  held: ["Waiting because the device is reachable or silenced", "设备可达或静默，暂缓"],
  longPolls: ["Senders waiting for jobs", "等待任务的发送服务"],
  results: ["Results since the start", "启动以来的结果"],
  outcome: ["Outcome", "结果"],
  created: ["Jobs created", "已创建任务"], lapsed: ["Leases that ran out", "超时租约"], exhausted: ["Given up after all attempts", "重试用尽"],
  byApp: ["Due jobs by app", "各应用可领取任务"],
  hook: ["Hook", "Hook"],
  hookNone: ["No hook is configured; senders lease jobs themselves.", "未配置 Hook，发送服务自行领取。"],
  hookHealthy: ["its receiver answers", "接收方正常"], hookFailing: ["its receiver fails", "接收方异常"],
  hookHeld: ["Batches under way", "进行中的批次"], lastStatus: ["Last status", "最近状态"],

  clusterNone: ["This gateway works alone. store.redis and cluster in the configuration make several gateways one.",
    "此网关单独运行。配置 store.redis 和 cluster 可组成集群。"],
  gateway: ["Gateway", "网关"], address: ["Address", "地址"], release: ["Release", "版本"], lease: ["Lease left", "剩余租约"], parts: ["Parts", "分区"],
  thisOne: ["this one", "本机"], drained: ["drained", "已排空"], leaving: ["leaving", "离开中"], serving: ["serving", "服务中"],
  drain: ["Drain", "排空"], undrain: ["Take back", "恢复"],
  drainSure: ["Have gateway {0} give all its parts to the others?", "让网关 {0} 把全部分区交给其他网关？"],
  undrainSure: ["Let gateway {0} serve parts again?", "让网关 {0} 重新承担分区？"],
  register: ["Register", "注册表"], registerOk: ["reached {0} ago", "{0} 前访问成功"], registerAway: ["not reached: {0}", "无法访问：{0}"],
  partOwner: ["gateway {0}", "网关 {0}"], partNone: ["no owner", "无归属"],
  partsTitle: ["Parts and their owners", "分区及归属"],

  sendTitle: ["Send a test message", "发送测试消息"],
  transmission: ["What the app gets (transmission)", "透传内容（transmission）"],
  alertTitle: ["Alert title for APNs, if it is not connected", "离线时 APNs 通知标题"],
  alertBody: ["Alert text", "通知内容"],
  ttl: ["Keep it for (seconds)", "保留时间（秒）"],
  sendNow: ["Send", "发送"],
  sendSure: ["Send this message to a real device of app {0}?", "向应用 {0} 的真实设备发送此消息？"],
  sent: ["The gateway accepted it.", "网关已接收。"],
  sentLive: ["It went over the device's connection.", "已通过长连接发送。"],
  sentQueued: ["It waits for the device or for a vendor.", "等待设备上线或厂商领取。"],
  sentIgnored: ["Nothing was sent: the device is blacklisted or inactive.", "未发送：设备在黑名单或长期不活跃。"],
  showTrace: ["Show what becomes of it", "查看投递过程"],
  device: ["Be a device", "模拟设备"],
  deviceTitle: ["This page as a device", "把本页当作设备"],
  deviceHint: ["It registers as a device of the app over a WebSocket and gets its messages like a phone, also while you look at other pages of the console.",
    "本页通过 WebSocket 注册为应用的一台设备，像手机一样收消息；切换到控制台其他页面时连接仍保持。"],
  deviceInsecure: ["A browser computes the proof of a device only on a page that it trusts: open the console by https, or by http at localhost or 127.0.0.1 (ssh -L does).",
    "浏览器只在可信页面上计算设备证明：请用 https 打开控制台，或用 http 打开 localhost 或 127.0.0.1（可用 ssh -L 转发）。"],
  appSecret: ["The app's appSecret", "应用的 appSecret"],
  appSecretHint: ["It proves the registration and is not kept. The secret of the new device stays in this browser.",
    "用于证明注册，不会保存。新设备的密钥保存在本浏览器。"],
  deviceRegister: ["Register and connect", "注册并连接"],
  deviceConnecting: ["connecting", "连接中"], deviceWaiting: ["comes back by itself", "稍后自动重连"], deviceEnded: ["ended", "已结束"],
  deviceStopped: ["The gateway closed the connection: {0}", "网关关闭了连接：{0}"],
  devicePosition: ["Acked up to", "已确认到"],
  deviceConnect: ["Connect", "连接"], deviceLeave: ["Disconnect", "断开"],
  devicePush: ["Push to it", "推送一条"],
  deviceForget: ["Forget this device", "忘记此设备"],
  deviceForgetSure: ["Forget this device? What it did not get will never be shown here.", "忘记此设备？尚未收到的消息将不会再显示。"],
  deviceMessages: ["Messages as they arrive", "收到的消息"],
  deviceNoMessages: ["None yet. Press “Push to it”, or push to the cid from your server.", "还没有消息。点“推送一条”，或从服务器向此 cid 推送。"],
  deviceArrived: ["Arrived", "到达时间"], deviceSequence: ["Sequence", "序号"], deviceFlags: ["Flags", "标志"],
  deviceBroadcast: ["broadcast", "群推"], deviceFresh: ["live", "在线"], deviceOffline: ["offline", "离线"],
  deviceAlerted: ["alerted {0}", "厂商已提醒 {0}"], deviceAttempt: ["attempt {0}", "第 {0} 次"], deviceRevoked: ["revoked", "已撤回"],
  deviceNone: ["No device at hand? This page can be one.", "手边没有设备？本页可以充当。"],
  deviceSee: ["See it arrive", "查看到达"],
  sendToOwn: ["Send to this page's device", "发给本页的设备"],
  dayWord: ["d", "天"], hourWord: ["h", "小时"], minuteWord: ["min", "分"], secondWord: ["s", "秒"],
};

const KEY = "longwire.language";
let language = localStorage.getItem(KEY) ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export const isChinese = () => language === "zh";
export const locale = () => (isChinese() ? "zh-CN" : "en-GB");

export function setLanguage(chinese) {
  language = chinese ? "zh" : "en";
  localStorage.setItem(KEY, language);
}

/** Returns the text of a key with {0}, {1} replaced. */
export function t(key, ...values) {
  const pair = TEXTS[key];
  if (!pair) return key;
  return pair[isChinese() ? 1 : 0].replace(/\{(\d)\}/g, (_, index) => values[Number(index)] ?? "");
}

/** Returns the text of a prefix and a word of the API, or the word itself. */
export function tWord(prefix, word) {
  const key = prefix + word.charAt(0).toUpperCase() + word.slice(1);
  return TEXTS[key] ? t(key) : word;
}

export const number = value => (value === null || value === undefined || !Number.isFinite(value) ? "–"
  : new Intl.NumberFormat(locale(), {maximumFractionDigits: Math.abs(value) < 10 ? 1 : 0}).format(value));

export const compact = value => (value === null || value === undefined || !Number.isFinite(value) ? "–"
  : new Intl.NumberFormat(locale(), {notation: Math.abs(value) >= 10_000 ? "compact" : "standard", maximumFractionDigits: Math.abs(value) < 10 ? 1 : Math.abs(value) >= 10_000 ? 1 : 0}).format(value));

export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  // Without partition 0 a gateway's own count may be negative: it removed data that other gateways counted.
  if (value < 0) return `−${bytes(-value)}`;
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (value >= size) return `${number(value / size)} ${unit}`;
  }
  return `${number(value)} B`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${number(seconds * 1e6)} µs`;
  if (seconds < 1) return `${number(seconds * 1e3)} ms`;
  if (seconds < 60) return `${number(seconds)} ${t("secondWord")}`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} ${t("minuteWord")}`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} ${t("hourWord")} ${Math.floor(seconds % 3600 / 60)} ${t("minuteWord")}`;
  return `${Math.floor(seconds / 86400)} ${t("dayWord")} ${Math.floor(seconds % 86400 / 3600)} ${t("hourWord")}`;
}

/** Returns the local date and time. */
export function time(milliseconds) {
  if (!milliseconds) return t("never");
  return new Intl.DateTimeFormat(locale(), {dateStyle: "medium", timeStyle: "medium"}).format(new Date(milliseconds));
}

export const clock = milliseconds => new Intl.DateTimeFormat(locale(),
  {hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3}).format(new Date(milliseconds));
