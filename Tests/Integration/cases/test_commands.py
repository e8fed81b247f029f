"""The commands for finding a message or repairing a queue, against a real gateway."""

import json
import os
import shutil
import subprocess

import pytest
from conftest import QUICK
from gateway import ADMIN_TOKEN, Gateway, binary, free_ports
from test_find import device


def longwire(gateway, *words, code=0, **environment):
    settings = {
        "LONGWIRE_APP_ID": gateway.app["appId"], "LONGWIRE_APP_KEY": gateway.app["appKey"],
        "LONGWIRE_MASTER_SECRET": gateway.app["masterSecret"], "LONGWIRE_ADMIN_TOKEN": ADMIN_TOKEN,
        "LONGWIRE_HTTP": f"127.0.0.1:{gateway.http}", "LONGWIRE_ADMIN": f"127.0.0.1:{gateway.admin}", **environment,
    }
    settings |= {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
    done = subprocess.run([binary("longwire"), *words], env=settings, capture_output=True, text=True, timeout=60)
    assert code is None or done.returncode == code, done.stderr + done.stdout
    return done.stderr if code else done.stdout


def test_the_commands_tell_it_in_words_and_as_json(gateway, tmp_path):
    phone, cid = device(gateway)
    gateway.api("POST", "user/alias", {"data_list": [{"cid": cid, "alias": "words"}]})
    first = gateway.push(cid, "hello", request_id="words-000001")
    phone.receive_and_ack(1)
    gateway.ends_as(first["msgId"], "delivered")
    told = longwire(gateway, "trace", "--text", first["msgId"])
    assert "The device acked it." in told and "Delivered: the device has it." in told
    assert json.loads(longwire(gateway, "trace", first["msgId"]))["state"] == "delivered"
    for name in ("words-000001", first["taskId"]):
        assert "The device acked it." in longwire(gateway, "trace", "--text", name)
    for name in (cid, "words"):
        told = longwire(gateway, "trace", "--text", name)
        assert first["msgId"] in told and "connected" in told
    assert json.loads(longwire(gateway, "device", "show", cid))["connected"]
    assert "did you mean app" in longwire(gateway, "apq", code=64)
    assert gateway.app["appId"] in longwire(gateway, "app", "list")
    assert "connected_devices" in longwire(gateway, "app", "show", "--text", gateway.app["appId"])
    assert cid in longwire(gateway, "device", "list", "--limit", "500")
    assert "knows nothing" in longwire(gateway, "trace", "no-such-request", code=1)

    assert "successed_online" in longwire(gateway, "push", "--alias", "words", "--payload", "x", "--ttl", "2h")
    task = json.loads(longwire(gateway, "push", "--all", "--payload", "x"))["data"]["taskid"]
    (tmp_path / "cids").write_text(f"{cid}\n")
    assert cid in longwire(gateway, "push", "--list", str(tmp_path / "cids"), "--payload", "x")
    assert "Stopped" in longwire(gateway, "revoke", "--text", task)
    assert "broadcast" in longwire(gateway, "trace", "--text", task)
    assert "--yes" in longwire(gateway, "queue", "purge", "--cid", cid, code=64)
    assert "Ended" in longwire(gateway, "queue", "purge", "--text", "--yes", "--cid", cid)
    assert "jobs" in json.loads(longwire(gateway, "queue", "peek"))
    looks = longwire(gateway, "top", "--count", "2", "--interval", "500ms").splitlines()
    assert len(looks) == 2 and "perSecond" in json.loads(looks[1])
    findings = json.loads(longwire(gateway, "doctor", "--expect", "100", "--store", str(tmp_path), code=None))["findings"]
    verdicts = {finding["what"]: finding["verdict"] for finding in findings}
    assert verdicts["gateway"] == verdicts["gateway's health"] == verdicts["clock"] == "ok" and "disk sync" in verdicts
    longwire(gateway, "device", "disconnect", cid)
    phone.close()


def test_a_wrong_port_or_tls_where_there_is_none_has_a_hint(gateway):
    admin, http = f"127.0.0.1:{gateway.admin}", f"127.0.0.1:{gateway.http}"
    assert "try http://" in longwire(gateway, "app", "list", "--admin", f"https://{admin}", code=69)
    assert "the push API" in longwire(gateway, "app", "list", "--admin", http, code=1)
    assert "admin listener" in longwire(gateway, "push", "--all", "--payload", "x", "--http", admin, code=1)
    assert "7081" in longwire(gateway, "app", "list", "--admin", "127.0.0.1:1", code=69)
    assert "cannot be read" in longwire(gateway, "app", "list", "--ca", "/none", code=64)


def test_a_private_authority_is_named_by_ca(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("the openssl command makes the certificate")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=longwire test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    plain, secure = free_ports(2)
    tls = {"listen": f"127.0.0.1:{secure}", "certificate": str(certificate), "key": str(key)}
    with Gateway(limits=QUICK, http={"listen": f"127.0.0.1:{plain}", "tls": tls}) as gateway:
        gateway.http = plain
        words = ["push", "--all", "--payload", "x", "--http", f"https://127.0.0.1:{secure}"]
        assert "--ca FILE" in longwire(gateway, *words, code=69)
        assert "taskid" in longwire(gateway, *words, "--ca", str(certificate))
        # Plain HTTP to the port with TLS.
        words[-1] = f"http://127.0.0.1:{secure}"
        assert "try https://" in longwire(gateway, *words, code=69)
