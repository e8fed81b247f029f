"""Apps created by the admin API: served without a restart, stored, and known to every gateway."""

import json
import signal
import subprocess
import time

import longwire_client
import pytest
from cluster import Cluster, retried
from conftest import QUICK
from gateway import ADMIN_TOKEN, Gateway, Refused, binary, eventually
from longwire_client import Closed
from redis_rig import RedisRig

DISABLED = 203


def act(gateway, method, path, body=None):
    return gateway.admin_call(method, path, body)


def refused(call):
    with pytest.raises(Refused) as failure:
        call()
    return failure.value.status, failure.value.body["error"]["message"]


def phone(gateway, app, **fields):
    device = longwire_client.Device("127.0.0.1", gateway.device, app["appId"])
    device.register(app["appSecret"], **fields)
    return device


def serve(gateway, app):
    """Makes the gateway's calls use another app's secrets."""
    gateway.app, gateway._token = app, None
    return gateway


def shop(gateway, name="shop", **settings):
    made = act(gateway, "POST", "/v1/apps", {"appId": name, "apns": {"topic": "com.example.shop"}, **settings})
    assert made["created"] and made["source"] == "api" and made["state"] == "enabled"
    return {key: made[key] for key in ("appId", "appKey", "appSecret", "masterSecret")}


def closed_with(call):
    with pytest.raises(Closed) as failure:
        call()
    return failure.value.code


def test_an_app_is_made_changed_and_kept_across_a_kill():
    with Gateway(limits=QUICK) as gateway:
        demo = gateway.app
        app = shop(gateway, queue={"messages": 500})
        again = act(
            gateway, "POST", "/v1/apps",
            {"appId": "shop", "apns": {"topic": "com.example.shop"}, "queue": {"messages": 500}})
        assert not again["created"] and "appSecret" not in again and "masterSecret" not in again
        status, text = refused(lambda: act(gateway, "POST", "/v1/apps", {"appId": "shop2", "queue": {"messages": 0}}))
        assert status == 400 and "queue.messages: 0 is not allowed" in text
        status, text = refused(lambda: act(gateway, "POST", "/v1/apps/demo/disable"))
        assert status == 409 and "configuration file" in text
        device = phone(gateway, app)
        serve(gateway, app)
        sent = gateway.push(device.state.cid.hex(), "to the shop")["msgId"]
        device.receive_and_ack(1)
        gateway.ends_as(sent, "delivered")
        changed = act(gateway, "PATCH", "/v1/apps/shop", {"queue": {"bytes": 65536}})
        assert changed["changed"] and changed["settings"]["queue"] == {"bytes": 65536, "messages": 500}
        device.ping()  # still connected

        gateway.kill()
        gateway.start()
        page = act(gateway, "GET", "/v1/apps/shop")
        assert page["settings"] == changed["settings"] and "appSecret" not in page
        assert [(one["appId"], one["source"]) for one in act(gateway, "GET", "/v1/apps")["apps"]] == [
            ("demo", "file"), ("shop", "api")]
        assert app["appSecret"] not in json.dumps(page) and app["masterSecret"] not in json.dumps(page)
        device.connect()
        gateway._token = None
        sent = gateway.push(device.state.cid.hex(), "after the kill")["msgId"]
        device.receive_and_ack(1)
        gateway.ends_as(sent, "delivered")
        device.close()
        lines = gateway.log().splitlines()
        assert any("appChanged" in line and "created" in line and "name=admin" in line for line in lines)
        assert not any(app["appSecret"] in line or app["masterSecret"] in line for line in lines)
        serve(gateway, demo)


def test_old_and_new_secrets_hold_beside_each_other_for_a_time():
    with Gateway(limits=QUICK) as gateway:
        app = shop(gateway)
        new = act(gateway, "POST", "/v1/apps/shop/rotate", {"secret": "appSecret", "overlapSeconds": 3})
        assert len(new["appSecrets"]) == 2 and new["appSecrets"][1]["validUntil"]
        old_phone, new_phone = phone(gateway, app), phone(gateway, {**app, "appSecret": new["appSecret"]})

        def old_one_ends():
            try:
                phone(gateway, app).close()
            except Closed as closed:
                return closed.code == 401
            return False

        eventually(old_one_ends, "the old secret's end", 30)
        assert len(act(gateway, "GET", "/v1/apps/shop")["appSecrets"]) == 1
        # Devices that registered before are not affected.
        old_phone.ping()
        new_phone.ping()
        master = act(gateway, "POST", "/v1/apps/shop/rotate", {"secret": "masterSecret", "overlapSeconds": 0})
        serve(gateway, app)
        assert refused_token(gateway)
        serve(gateway, {**app, "masterSecret": master["masterSecret"]})
        gateway.push(new_phone.state.cid.hex(), "hello")
        for device in (old_phone, new_phone):
            device.close()


def refused_token(gateway):
    try:
        gateway.api("GET", "user/status/" + "0" * 32)
    except Refused as refusal:
        return refusal.status == 400 and "sign" in str(refusal.body)
    return False


def test_a_disabled_app_is_served_to_nobody_and_keeps_what_it_has():
    with Gateway(limits=QUICK) as gateway:
        demo = gateway.app
        app = shop(gateway)
        other, device = phone(gateway, demo), phone(gateway, app)
        serve(gateway, app)
        away = phone(gateway, app)
        away.close()
        waiting = gateway.push(away.state.cid.hex(), "kept")["msgId"]
        assert act(gateway, "POST", "/v1/apps/shop/disable")["disabled"]
        assert not act(gateway, "POST", "/v1/apps/shop/disable")["disabled"]
        assert closed_with(lambda: device.receive(longwire_client.pb.Deliver)) == DISABLED
        assert closed_with(away.connect) == DISABLED
        assert closed_with(lambda: phone(gateway, app)) == DISABLED
        with pytest.raises(Refused):
            gateway.push(away.state.cid.hex(), "not taken")
        status, text = refused(lambda: act(gateway, "POST", "/v1/apps/shop/push", {}))
        assert status == 409 and "disabled" in text
        other.ping()
        assert gateway.trace(waiting)["state"] == "pending"
        assert act(gateway, "GET", f"/v1/apps/shop/devices/{away.state.cid.hex()}")["queue"]["messages"] == 1

        assert act(gateway, "POST", "/v1/apps/shop/enable")["enabled"]
        away.connect()
        away.receive_and_ack(1)
        gateway.ends_as(waiting, "deliveredOffline")
        status, text = refused(lambda: act(gateway, "DELETE", "/v1/apps/shop"))
        assert status == 409 and "disable" in text
        act(gateway, "POST", "/v1/apps/shop/disable")
        assert act(gateway, "DELETE", "/v1/apps/shop")["deleted"]
        assert refused(lambda: act(gateway, "GET", "/v1/apps/shop"))[0] == 404
        gateway.kill()
        gateway.start()
        assert [one["appId"] for one in act(gateway, "GET", "/v1/apps")["apps"]] == ["demo"]
        # Created again, the app has its devices.
        again = shop(gateway)
        serve(gateway, again)
        away.connect()
        gateway.push(away.state.cid.hex(), "back")
        away.receive_and_ack(1)
        for one in (away, other):
            one.close()


def test_what_is_timed_waits_for_a_disabled_app_and_goes_out_once_it_is_enabled():
    with Gateway(limits={**QUICK, "taskPatienceMilliseconds": 500}) as gateway:
        app = shop(gateway)
        devices = [phone(gateway, app) for _ in range(6)]
        serve(gateway, app)
        due = int(time.time() * 1000) + 2_500
        settings = {"schedule_time": due, "ttl": 600_000}
        message = {"settings": settings, "push_message": {"transmission": "listed"}}
        task = gateway.api("POST", "push/list/message", message)["data"]["taskid"]
        cids = [device.state.cid.hex() for device in devices]
        gateway.api("POST", "push/list/cid", {"taskid": task, "audience": {"cid": cids}})
        everyone = {"audience": "all", "request_id": "timed-everyone", "settings": settings,
                    "push_message": {"transmission": "to all"}}
        gateway.api("POST", "push/all", everyone)
        assert act(gateway, "POST", "/v1/apps/shop/disable")["disabled"]
        for device in devices:
            assert closed_with(lambda: device.receive(longwire_client.pb.Deliver)) == DISABLED
        # The scheduled times pass, and several attempts at the tasks fail.
        time.sleep(max(0, due / 1000 - time.time()) + 1.5)
        assert act(gateway, "POST", "/v1/apps/shop/enable")["enabled"]
        for device in devices:
            device.connect()
            assert sorted(message.payload for message in device.receive_and_ack(2, timeout=20)) == [b"listed", b"to all"]
            device.close()


def test_an_app_of_the_file_hides_one_of_the_same_id():
    with Gateway(limits=QUICK) as gateway:
        app = shop(gateway, "both")
        gateway.sections["apps"].append({"appId": "both", "appKey": "filed", "appSecret": "secret-of-file", "masterSecret": "master-of-file"})
        gateway.config.write_text(json.dumps(gateway.sections))
        gateway.process.send_signal(signal.SIGHUP)
        eventually(lambda: act(gateway, "GET", "/v1/apps/both")["source"] == "file", "the file's app")
        assert closed_with(lambda: phone(gateway, app)) == 401
        assert "appShadowed" in gateway.log()
        assert refused(lambda: act(gateway, "PATCH", "/v1/apps/both", {}))[0] == 409


def test_a_gateway_without_an_app_of_its_own_serves_those_of_the_api():
    with Gateway(limits=QUICK, apps=[]) as gateway:
        app = shop(gateway)
        serve(gateway, app)
        device = phone(gateway, app)
        gateway.push(device.state.cid.hex(), "alone")
        device.receive_and_ack(1)
        device.close()
        sender = longwire_client.Sender("127.0.0.1", gateway.senders, "shop", app["masterSecret"])
        act(gateway, "POST", "/v1/apps/shop/disable")
        assert closed_with(lambda: sender.connection.receive(longwire_client.pb.PublishResult)) == DISABLED
        assert closed_with(
            lambda: longwire_client.Sender("127.0.0.1", gateway.senders, "shop", app["masterSecret"])) == DISABLED


def test_the_command_makes_and_shows_an_app():
    with Gateway(limits=QUICK) as gateway:
        def tool(*words, code=0, given=None):
            done = subprocess.run(
                [binary("longwire"), *words, "--admin", f"127.0.0.1:{gateway.admin}", "--admin-token", ADMIN_TOKEN],
                capture_output=True, text=True, input=given, timeout=60)
            assert done.returncode == code, done.stderr
            return done.stdout if code == 0 else done.stderr

        made = json.loads(tool("app", "create", "shop", "--settings", '{"maxAttempts": 3}'))
        assert made["created"] and made["settings"] == {"maxAttempts": 3}
        assert "nothing was changed" in tool("app", "create", "shop", "--settings", '{"maxAttempts": 3}', "--text")
        assert "was changed" in tool("app", "set", "shop", "--settings-file", "-", "--text", given='{"maxAttempts": null}')
        new = tool("app", "rotate", "shop", "--secret", "masterSecret", "--overlap", "1h", "--text")
        assert "masterSecret" in new and "Keep the secrets" in new
        assert "2 values" not in tool("app", "show", "shop", "--text")
        assert "disable" in tool("app", "delete", "shop", "--yes", code=1)
        assert "add --yes" in tool("app", "delete", "shop", code=64)
        tool("app", "disable", "shop")
        assert "disabled  api" in tool("app", "list", "--text")
        tool("app", "enable", "shop")
        tool("app", "disable", "shop")
        tool("app", "delete", "shop", "--yes")
        assert "shop" not in tool("app", "list", "--text")
        status = tool("app", "create", "demo", code=1)
        assert "configuration file" in status


@pytest.fixture(scope="module")
def rig():
    with RedisRig() as rig:
        yield rig


def test_every_gateway_follows_also_one_that_starts_later_or_takes_the_rows_over(rig):
    with Cluster(rig, limits=QUICK) as cluster:
        app = retried(lambda: shop(cluster[2]))
        assert act(cluster[2], "GET", "/v1/apps/shop")["state"] == "enabled"
        for gateway in cluster:
            eventually(lambda: "shop" in str(act(gateway, "GET", "/v1/apps")), "the app everywhere", 10)
        devices = [phone_anywhere(gateway, app) for gateway in cluster]
        # The owner of the rows is killed, and the next owner reads them.
        owner = cluster.owners()[0]
        dead = next(one for one in cluster if cluster.map_of(one)["node"] == owner)
        dead.kill()
        cluster.wait_until_served()
        left = cluster.running
        changed = retried(lambda: act(left[0], "PATCH", "/v1/apps/shop", {"maxAttempts": 2}))
        assert changed["settings"]["maxAttempts"] == 2
        eventually(lambda: act(left[1], "GET", "/v1/apps/shop")["settings"] == changed["settings"], "the change", 15)
        dead.start()
        cluster.wait_until_served()
        eventually(lambda: act(dead, "GET", "/v1/apps/shop")["settings"] == changed["settings"], "a start's apps", 15)
        retried(lambda: act(dead, "POST", "/v1/apps/shop/disable"))
        for gateway in cluster:
            eventually(lambda: act(gateway, "GET", "/v1/apps/shop")["state"] == "disabled", "the end everywhere", 15)
            assert closed_with(lambda: phone(gateway, app)) == DISABLED
        for device in devices:
            device.close()


def phone_anywhere(gateway, app):
    end = time.monotonic() + 30
    while True:
        try:
            return phone(gateway, app)
        except Closed as closed:
            if closed.code != 202 or time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_jobs_of_a_disabled_app_are_leased_with_its_topic_and_its_events_are_told_after_a_restart():
    with Gateway(limits=QUICK) as gateway:
        app = shop(gateway, events={})
        device = phone(gateway, app, tokens=[longwire_client.pb.VendorToken(token="cd" * 32)])
        device.close()
        serve(gateway, app)
        alerted = gateway.push(device.state.cid.hex(), "x", alert="A", strategy=2)
        ended = gateway.push(device.state.cid.hex(), "y", strategy=3, ttl=3_000)
        act(gateway, "POST", "/v1/apps/shop/disable")
        gateway.kill()
        gateway.start()
        (job,) = eventually(gateway.lease, "the job of the disabled app")
        assert (job["jobId"], job["appId"], job["topic"]) == (alerted["msgId"], "shop", "com.example.shop"), job
        assert gateway.settle(job, "accepted") == "recorded"
        gateway.ends_as(ended["msgId"], "expired")
        act(gateway, "POST", "/v1/apps/shop/enable")

        def told():
            page = act(gateway, "GET", "/v1/apps/shop/events")
            assert page.get("gap", 0) in (0, None), page
            return [item for item in page["items"] if item.get("msgId") == ended["msgId"]]

        assert [item["type"] for item in eventually(told, "the event of the time when the app was disabled")] == ["expired"]


def test_an_app_out_of_the_file_keeps_its_jobs_until_it_is_back():
    with Gateway(limits=QUICK) as gateway:
        device = phone(gateway, gateway.app, tokens=[longwire_client.pb.VendorToken(token="cd" * 32)])
        device.close()
        alerted = gateway.push(device.state.cid.hex(), "x", alert="A", strategy=2)
        other = {"appId": "other", "appKey": "otherKey", "appSecret": "other-app-secret", "masterSecret": "other-master-secret"}
        for apps in ([other], [gateway.app, other]):
            gateway.kill()
            gateway.sections["apps"] = apps
            gateway.start()
            jobs = gateway.lease() if apps == [other] else eventually(gateway.lease, "the job of the app that is back")
            if apps == [other]:
                assert jobs == [] and gateway.trace(alerted["msgId"])["state"] == "pending"
        assert [(job["jobId"], job["topic"]) for job in jobs] == [(alerted["msgId"], "com.example.demo")]


def test_an_app_just_made_is_known_at_every_gateway_of_a_cluster():
    with RedisRig() as rig, Cluster(rig, count=2, limits=QUICK) as cluster:
        first, second = cluster
        for number in range(20):
            app = retried(lambda: shop(first, f"shop{number}"))
            # The device connects at once. The other gateway may not know the app yet.
            serve(second, app).authenticate()
            device = longwire_client.Device("127.0.0.1", second.device, app["appId"])
            try:
                device.register(app["appSecret"])
            except Closed as closed:
                assert closed.code == 202, closed
            device.close()
        for _ in range(2):
            status, _ = refused(lambda: act(second, "GET", "/v1/apps/nobody"))
            assert status == 404
            assert closed_with(lambda: phone(second, {**app, "appId": "nobody"})) == 402


def test_a_cluster_gateway_that_knows_no_apps_yet_leases_no_jobs_of_theirs():
    with RedisRig() as rig, Cluster(rig, count=1, parts=4, limits=QUICK) as cluster:
        gateway = cluster[0]
        app = retried(lambda: shop(gateway))
        serve(gateway, app)
        sent = set()
        for number in range(6):
            device = longwire_client.Device("127.0.0.1", gateway.device, "shop")
            retried(lambda: device.register(app["appSecret"], tokens=[longwire_client.pb.VendorToken(token=f"c{number}" * 32)]))
            device.close()
            sent.add(retried(lambda: gateway.push(device.state.cid.hex(), "x", alert="A", strategy=2))["msgId"])
        # A damaged entry prevents the opening of part 0, which has the apps.
        log = f"{{lw:{cluster.name}:p0}}:log"
        epoch = rig.call("XREVRANGE", log, "+", "-", "COUNT", 1, key=log)[0][0].decode().split("-")[0]
        entry = f"{epoch}-{1 << 40}"
        rig.call("XADD", log, entry, "q", "damage", key=log)
        gateway.kill()
        gateway.process = gateway.spawn()

        def others_are_open():
            try:
                owners = cluster.owners(gateway)
            except (OSError, Refused):
                return False
            return owners[0] is None and None not in owners[1:]

        eventually(others_are_open, "the parts but 0")
        assert gateway.lease() == []
        assert closed_with(lambda: phone(gateway, app)) == 202
        rig.call("XDEL", log, entry, key=log)
        found = {}

        def all_leased():
            for job in retried(gateway.lease):
                found[job["jobId"]] = job["topic"]
            return set(found) == sent

        eventually(all_leased, "the jobs")
        assert set(found.values()) == {"com.example.shop"}
