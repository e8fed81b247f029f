"""Hooks of schemathesis in addition to docs/use/openapi.yaml: names that exist in the tested gateway, and one more check.

Random names do not exist, so requests with them would end at the first lookup. Three of four are replaced here by real ones. The
choice depends only on the request's content, so that a run can be repeated.
"""

import hashlib
import hmac
import json
import os
import re
import time
import zlib

import schemathesis

WORLD = json.loads(os.environ["LONGWIRE_WORLD"])
CID = re.compile(r"[0-9a-f]{32}")
TASK = re.compile(r"RAS[SLA]_[0-9]{4}_[0-9a-f]{24}")


def chosen(text, names, kind):
    """Returns a real name in three of four cases, and for the document's own examples; else the text itself."""
    number = zlib.crc32(str(text).encode("utf-8", "surrogatepass"))
    return text if number % 4 == 0 and not names["always"] else names[kind][number // 4 % len(names[kind])]


# Destructive calls use separate names, so that other calls still find theirs.
TAKES_AWAY = {"bindAliases", "unbindAliases", "unbindAlias", "blacklist", "unblacklist", "stopTask", "purgeDevice", "disconnectDevice"}

# These calls change apps created through the admin API, and none of the file.
CHANGES_APP = {"changeApp", "deleteApp", "rotateAppSecret", "enableApp", "disableApp"}


def world(operation, always):
    """Returns the names for a call, by kind; `always` replaces every name."""
    names = {kind: WORLD[kind] for kind in ("cids", "tasks", "messages", "aliases", "dates", "spareTokens", "requests", "spareApps", "disabledApps")}
    names["always"] = always
    if operation in TAKES_AWAY:
        names |= {"cids": WORLD["spareCids"], "tasks": WORLD["spareTasks"], "aliases": ["spare"]}
    if operation in ("getMessageDetail", "findTaskMessage"):
        names["tasks"] = WORLD["tasksOfAll"]  # No other device has a message of the task.
    if operation in ("getSchedule", "deleteSchedule"):
        names["tasks"] = WORLD["timedTasks"]
    if operation in ("pushList", "pushListToAliases", "pushListByTag"):
        names["tasks"] = WORLD["listTasks"]
    return names


def real(text, kind, names):
    if kind == "msgId":
        return CID.sub(lambda match: chosen(match.group(), names, "messages"), text)
    if kind in ("cid", "cids"):
        return CID.sub(lambda match: chosen(match.group(), names, "cids"), text)
    if kind in ("taskId", "taskIds", "taskid", "old_task_id"):
        return TASK.sub(lambda match: chosen(match.group(), names, "tasks"), text)
    if kind == "alias":
        return chosen(text, names, "aliases")
    if kind == "requestId":
        return chosen(text, names, "requests")
    if kind == "token":
        return chosen(text, names, "spareTokens")
    if kind == "date":
        return chosen(text, names, "dates")
    return text


def renamed(value, names, key=""):
    if isinstance(value, dict):
        return {name: renamed(member, names, name) for name, member in value.items()}
    if isinstance(value, list):
        return [renamed(member, names, key) for member in value]
    if key == "waitSeconds" and isinstance(value, int) and 0 <= value <= 30:
        return value % 2  # A long poll delays the run.
    if isinstance(value, str):
        if key == "jobId":
            return chosen(value, names, "messages")
        return real(value, key, names)
    return value


@schemathesis.hook
def before_call(context, case, kwargs):
    """Changes every request of every phase just before it is sent."""
    operation = case.operation.definition.raw.get("operationId")
    names = world(operation, case.meta is not None and case.meta.phase.name == "examples")
    if isinstance(case.path_parameters, dict):
        given = dict(case.path_parameters)
        for key, value in given.items():
            if isinstance(value, str):
                case.path_parameters[key] = real(value, key, names)
        if "appId" in given and (
            names["always"] or zlib.crc32(repr(sorted(given.items())).encode("utf-8", "surrogatepass")) % 16
        ):
            case.path_parameters["appId"] = WORLD["appId"]
            if operation in CHANGES_APP:
                kind = "disabledApps" if operation == "deleteApp" else "spareApps"
                text = repr((case.body, sorted(given.items()))).encode("utf-8", "surrogatepass")
                case.path_parameters["appId"] = WORLD[kind][zlib.crc32(text) % len(WORLD[kind])]
    if isinstance(case.body, (dict, list)):
        case.body = renamed(case.body, names)
    if operation == "reportEvents" and isinstance(case.body, dict):
        prove(case, kwargs, names["always"])
    if operation == "authenticate" and isinstance(case.body, dict):
        sign(case.body, names["always"])


def sign(credentials, always):
    """Sets the right sign for half of the bodies that may have one."""
    if set(credentials) >= {"appkey", "timestamp", "sign"} and (always or zlib.crc32(repr(credentials).encode()) % 2):
        now = int(time.time() * 1000)
        credentials["appkey"] = WORLD["appKey"]
        credentials["timestamp"] = str(now) if isinstance(credentials["timestamp"], str) else now
        credentials["sign"] = hashlib.sha256(f"{WORLD['appKey']}{now}{WORLD['masterSecret']}".encode()).hexdigest()


def prove(case, kwargs, always):
    """Sets the right proof, for the right time, of half of the receipts."""
    receipt = case.body
    if "timestamp" in receipt and (always or zlib.crc32(repr(receipt).encode("utf-8", "surrogatepass")) % 4):
        receipt["timestamp"] = int(time.time() * 1000)
    secret = WORLD["secrets"].get(str(receipt.get("cid")))
    if secret is None or not (always or zlib.crc32(repr(receipt).encode("utf-8", "surrogatepass")) % 2):
        return
    try:
        body = json.dumps(receipt).encode("utf-8")
    except (TypeError, ValueError):
        return
    transcript = b"longwire receipt 1\0" + WORLD["appId"].encode() + b"\0" + body
    case.headers = dict(case.headers or {})
    case.headers["X-Longwire-Proof"] = hmac.new(bytes.fromhex(secret), transcript, hashlib.sha256).hexdigest()
    case.headers["Content-Type"] = "application/json"
    case.body = body


@schemathesis.hook
def after_call(context, case, response):
    """Records the answer; run.py requires that each call succeeded at least once."""
    code = ""
    if response.content.startswith(b'{"code":'):
        code = json.loads(response.content)["code"]
    with open(os.environ["LONGWIRE_ANSWERS"], "a", encoding="utf-8") as answers:
        answers.write(f"{case.operation.label}\t{case.method}\t{response.status_code}\t{code}\n")


@schemathesis.check
def envelope(context, response, case):
    """Checks that code 0 only comes with 200, 1 too, other codes never, and that all is compact UTF-8 JSON."""
    if not response.content or response.headers.get("content-type", [""])[0].startswith("text/plain"):
        return
    kind = response.headers["content-type"][0]
    assert kind == "application/json;charset=utf-8", f"the content type is {kind}"
    body = json.loads(response.content.decode("utf-8"))
    if "code" in body:
        assert (body["code"] in (0, 1)) == (response.status_code == 200), f"{body} with {response.status_code}"
