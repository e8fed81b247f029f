<?php
// Calls the gateway as Getui's PHP SDK does, reimplemented. One curl handle for each URL is kept permanently and never reset.
// Every parameter passes json_encode, so that no parameters are the body `null` and an empty map is `[]`. The verb is set by
// CUSTOMREQUEST, which persists on a handle. Certificates are not verified. 10001 causes one more attempt.
//
//     php client.php BASE-URL APP-ID APP-KEY MASTER-SECRET CID
//
// Prints one JSON object with the answer to each call, by its name.

[, $base, $appId, $appKey, $secret, $cid] = $argv;
$handles = [];
$token = null;

function call(string $method, string $path, $parameters = null)
{
    global $handles, $token, $base, $appId;
    $url = "$base/v2/$appId$path";
    $handles[$url] ??= curl_init($url);
    $curl = $handles[$url];
    $headers = ['Content-Type:application/json;charset=UTF-8', 'Connection: Keep-Alive'];
    if ($token !== null) {
        array_unshift($headers, "token:$token");
    }
    curl_setopt_array($curl, [
        CURLOPT_RETURNTRANSFER => 1, CURLOPT_SSL_VERIFYPEER => 0, CURLOPT_SSL_VERIFYHOST => 0, CURLOPT_FOLLOWLOCATION => 1,
        CURLOPT_TIMEOUT => 20, CURLOPT_USERAGENT => 'Mozilla/4.0 (compatible; MSIE 5.01; Windows NT 5.0)',
        CURLOPT_HTTPHEADER => $headers, CURLOPT_PROXY => '',
    ]);
    $body = json_encode($parameters);
    if ($method === 'POST') {
        curl_setopt($curl, CURLOPT_POST, 1);
        curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
    } elseif ($method === 'GET') {
        curl_setopt($curl, CURLOPT_CUSTOMREQUEST, 'GET');
    } else {
        curl_setopt($curl, CURLOPT_CUSTOMREQUEST, $method);
        curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
    }
    $text = curl_exec($curl);
    if (curl_errno($curl) != 0) {
        return ['failed' => curl_error($curl)];
    }
    return json_decode($text, true) ?? ['failed' => $text];
}

function authenticate()
{
    global $token, $appKey, $secret;
    [$fraction, $seconds] = explode(' ', microtime());
    $timestamp = $seconds . substr($fraction, 2, 3);
    $answer = call('POST', '/auth', [
        'appkey' => $appKey, 'timestamp' => $timestamp, 'sign' => hash('sha256', $appKey . $timestamp . $secret),
    ]);
    $token = $answer['data']['token'] ?? $token;
    return $answer;
}

/* A message as the SDK's classes write it: unset values are empty arrays, text is escaped to ASCII. */
function message(string $id, array $audience, $text)
{
    return [
        'request_id' => $id, 'settings' => [], 'audience' => $audience,
        'push_message' => ['duration' => '1590547347000-1590633747000', 'transmission' => $text],
        'push_channel' => [
            'ios' => [
                'type' => 'notify', 'auto_badge' => '+1', 'payload' => '{"a":1}', 'apns-collapse-id' => 'c1',
                'aps' => ['alert' => ['title' => '你好', 'body' => 'a/b', 'loc-args' => []], 'content-available' => '0', 'sound' => 'default'],
                'multimedia' => [['url' => 'http://example.com/a', 'type' => 1, 'only_wifi' => false]],
            ],
            'android' => ['ups' => ['notification' => ['title' => 't', 'body' => 'b', 'click_type' => 'url', 'url' => 'http://x'], 'options' => []]],
        ],
    ];
}

$out = [];
$out['auth'] = authenticate();
$id = fn(string $name) => substr(hash('sha256', $name . microtime()), 0, 32);
$one = message($id('single'), ['cid' => [$cid]], "推送\u{1F600}/");
$out['single'] = call('POST', '/push/single/cid', $one);
$out['again'] = call('POST', '/push/single/cid', $one);
// Above curl's threshold for `Expect: 100-continue`, old and new.
$many = [];
for ($place = 0; $place < 190; $place++) {
    $many[] = message($id("batch$place"), ['cid' => [$cid]], str_repeat('长', 1500));
}
$out['bytes'] = strlen(json_encode(['is_async' => false, 'msg_list' => $many]));
$out['batch'] = count(call('POST', '/push/single/batch/cid', ['is_async' => false, 'msg_list' => $many])['data'] ?? []);
$out['alias'] = call('POST', '/user/alias', ['data_list' => [['cid' => $cid, 'alias' => 'php_user']]]);
$out['ofAlias'] = call('GET', '/user/cid/alias/php_user');
$out['toAlias'] = call('POST', '/push/single/alias', message($id('alias'), ['alias' => ['php_user']], 'x'));
$list = message($id('list'), [], 'to a list');
$list['audience'] = 'all';
$list['group_name'] = 'php';
$out['message'] = call('POST', '/push/list/message', $list);
$task = $out['message']['data']['taskid'] ?? '';
$out['list'] = call('POST', '/push/list/cid', ['audience' => ['cid' => [$cid, $cid]], 'taskid' => $task, 'is_async' => false]);
// An untyped caller's numbers, objects without values, and the body of a whole message where a list is expected.
$odd = message((string) random_int(10 ** 12, 10 ** 13), ['cid' => [$cid]], 2026);
$odd['request_id'] = (int) $odd['request_id'];
$odd['group_name'] = 7;
$odd['push_channel'] = ['ios' => ['type' => '', 'aps' => ['alert' => []]], 'android' => ['ups' => ['notification' => []]]];
$odd['settings'] = ['ttl' => '3600000', 'speed' => '', 'schedule_time' => null, 'strategy' => []];
$out['odd'] = call('POST', '/push/single/cid', $odd);
$nulls = message($id('nulls'), ['cid' => [$cid]], 'nulls');
$nulls['push_message']['duration'] = null;
$nulls['group_name'] = null;
$nulls['push_channel']['ios'] = ['type' => null, 'payload' => 5, 'auto_badge' => null, 'apns-collapse-id' => 77,
    'aps' => ['alert' => ['title' => 1, 'body' => null, 'loc-args' => [2]], 'sound' => null, 'content-available' => null]];
$out['nulls'] = call('POST', '/push/single/cid', $nulls);
$out['aliasNumber'] = call('POST', '/user/alias', ['data_list' => [['cid' => $cid, 'alias' => $number = random_int(1, 10 ** 9)]]]);
$out['toAliasNumber'] = call('POST', '/push/single/alias', message($id('number'), ['alias' => [$number]], 'y'));
$whole = call('POST', '/push/list/message', $list = ['request_id' => $id('whole')] + $list);
$task2 = $whole['data']['taskid'] ?? '';
$out['whole'] = call('POST', '/push/list/cid', ['audience' => ['cid' => [$cid]], 'taskid' => $task2]);
$out['wholeAlias'] = call('POST', '/push/list/alias', ['audience' => ['alias' => [$number]], 'taskid' => $task2, 'is_async' => 1]);
$later = ['audience' => 'all', 'settings' => ['schedule_time' => (string) (time() + 3600) . '000']];
$timed = call('POST', '/push/all', $later + message($id('timed'), [], 'later'))['data']['taskid'] ?? '';
// One URL, three verbs: the last GET carries the body `null` of the DELETE before it.
$out['schedule'] = call('GET', "/task/schedule/$timed");
$out['unschedule'] = call('DELETE', "/task/schedule/$timed");
$out['unscheduled'] = call('GET', "/task/schedule/$timed");
$out['tags'] = call('POST', "/user/custom_tag/cid/$cid", ['custom_tag' => ['标签', 'b']]);
// The same URL was POSTed before, so curl sends the old body with this GET.
$out['tagsOf'] = call('GET', "/user/custom_tag/cid/$cid");
$out['tag'] = call('PUT', '/user/custom_tag/batch/php', ['cid' => [$cid]]);
$out['untag'] = call('DELETE', '/user/custom_tag/batch/php', ['cid' => [$cid]]);
$out['count'] = call('POST', '/user/count', ['tag' => [['key' => 'phone_type', 'values' => ['IOS'], 'opt_type' => 'or']]]);
$out['black'] = call('POST', "/user/black/cid/$cid");
$out['unblack'] = call('DELETE', "/user/black/cid/$cid");
$out['status'] = call('GET', "/user/status/$cid");
$out['detail'] = call('GET', "/user/detail/$cid");
$out['badge'] = call('POST', "/user/badge/cid/$cid", ['badge' => '+1']);
// The last verb persists on a URL's handle, so this intended POST is sent as DELETE.
$out['blackAgain'] = call('POST', "/user/black/cid/$cid");
$out['longAgo'] = call('GET', '/report/push/date/2020-11-30');
$out['usersLongAgo'] = call('GET', '/report/user/date/2020-11-30');
$out['report'] = call('GET', "/report/push/task/$task");
$out['online'] = call('GET', '/report/online_user');
$out['stop'] = call('DELETE', "/task/$task");
$out['unbind'] = call('DELETE', '/user/alias', ['data_list' => [['cid' => $cid, 'alias' => 'php_user']]]);
$secretThen = [$secret, $secret = 'wrong'][0];
$out['wrongSecret'] = authenticate();
$secret = $secretThen;
$out['revoked'] = call('DELETE', "/auth/$token");
// The stale token is sent with the new authentication.
$out['refused'] = call('GET', "/user/status/$cid");
$out['renewed'] = authenticate();
$out['after'] = call('GET', "/user/status/$cid");
echo json_encode($out);
