"""HTTP/1.1 by the sections of RFC 9112 and RFC 9110: the answers of each listener to edge cases.

The cases are those of public conformance probes (Http11Probe's groups: request line, host, headers, line ends, body, length,
chunks, smuggling, malformed input), rewritten by hand. A case has the bytes and the status. `TAKEN` means that the API gets the
request, whatever its answer; `None` means that the gateway waits for more bytes.
"""

import re
import socket

import pytest
from gateway import ADMIN_TOKEN

HOST = b"Host: x\r\n"
TAKEN = "taken"
# The push API has a different status.
TOO_LARGE = {"http": 400, "admin": 413}


def get(lines=b"", target=b"/healthz", version=b"HTTP/1.1", method=b"GET", host=HOST):
    return method + b" " + target + b" " + version + b"\r\n" + host + lines + b"\r\n"


def post(lines, body=b""):
    """Returns a call with a body; the test inserts the path."""
    return b"POST /@ HTTP/1.1\r\n" + HOST + lines + b"\r\n" + body


def chunked(body):
    return post(b"Transfer-Encoding: chunked\r\n", body)


CASES = {
    # RFC 9112, section 2.2: lines.
    "2.2 a plain request": (get(), 200),
    "2.2 an empty line before it": (b"\r\n" + get(), 200),
    "2.2 LF alone behind the request line": (b"GET /healthz HTTP/1.1\n" + HOST + b"\r\n", 400),
    "2.2 LF alone everywhere": (b"GET /healthz HTTP/1.0\n\n", 400),
    "2.2 LF alone behind a header": (b"GET /healthz HTTP/1.1\r\nHost: x\n\r\n", 400),
    "2.2 LF alone before the request": (b"\n" + get(), 400),
    "2.2 CR alone": (b"GET /healthz HTTP/1.1\rHost: x\r\r", 400),
    "2.2 blanks before the first header": (b"GET /healthz HTTP/1.1\r\n " + HOST + b"\r\n", 400),
    # 2.3: versions.
    "2.3 HTTP/1.0": (get(version=b"HTTP/1.0", host=b""), 200),
    "2.3 a later minor version": (get(version=b"HTTP/1.2"), 200),
    "2.3 HTTP/2.0": (get(version=b"HTTP/2.0"), 505),
    "2.3 the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "2.3 HTTP/0.9": (b"GET /healthz\r\n", 400),
    "2.3 in lower case": (get(version=b"http/1.1"), 400),
    "2.3 without a minor version": (get(version=b"HTTP/1"), 400),
    "2.3 with a leading zero": (get(version=b"HTTP/01.1"), 400),
    "2.3 with blanks": (get(version=b"HTTP/ 1.1"), 400),
    "2.3 another protocol": (get(version=b"ICAP/1.1"), 400),
    # 3: the request line.
    "3 two spaces": (b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "3 a tab for a space": (b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "3 a space in the target": (get(target=b"/health z"), 400),
    "3 no target": (b"GET HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "3 a trailing space": (b"GET /healthz HTTP/1.1 \r\n" + HOST + b"\r\n", 400),
    "3 a control character in the target": (get(target=b"/health\x01z"), 400),
    "3.1 an unknown method": (get(method=b"BREW"), 501),
    "3.1 a method in lower case": (get(method=b"get"), 501),
    "3.1 CONNECT": (get(method=b"CONNECT", target=b"x:443"), 501),
    "3.1 TRACE": (get(method=b"TRACE"), 405),
    "3.1 DELETE of a page": (get(method=b"DELETE"), 405),
    "3.1 OPTIONS of a page": (get(method=b"OPTIONS"), 405),
    "3.1 HEAD of a page": (get(method=b"HEAD"), 200),
    "3 a request line of a megabyte": (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n", 414),
    "3.2 a fragment in the target": (get(target=b"/healthz#a"), 400),
    "3.2.1 a target without a slash": (get(target=b"healthz"), 400),
    "3.2.1 a query": (get(target=b"/healthz?a=b"), 200),
    "3.2.2 an absolute URI": (get(target=b"http://y:1/healthz"), 200),
    "3.2.2 its scheme in capitals": (get(target=b"HTTP://y/healthz?a"), 200),
    "3.2.2 an absolute URI without Host": (get(target=b"http://y/healthz", host=b""), 400),
    "3.2.2 with a user": (get(target=b"http://u:p@y/healthz"), 400),
    "3.2.2 of another scheme": (get(target=b"ftp://y/healthz"), 400),
    "3.2.3 an authority": (get(target=b"x:443"), 400),
    "3.2.4 the server as a whole": (get(method=b"OPTIONS", target=b"*"), 204),
    "3.2.4 the same with another method": (get(target=b"*"), 400),
    # 3.2: Host.
    "3.2 no Host": (get(host=b""), 400),
    "3.2 two hosts": (get(host=b"Host: x\r\nHost: y\r\n"), 400),
    "3.2 the same host twice": (get(host=b"Host: x\r\nhost: x\r\n"), 400),
    "3.2 an empty Host": (get(host=b"Host:\r\n"), 400),
    "3.2 a user in Host": (get(host=b"Host: u@x\r\n"), 400),
    "3.2 a path in Host": (get(host=b"Host: x/y\r\n"), 400),
    "3.2 blanks in Host": (get(host=b"Host: a b@c/d\r\n"), 400),
    "3.2 a port that is no number": (get(host=b"Host: x:http\r\n"), 400),
    "3.2 a port beyond all": (get(host=b"Host: x:65536\r\n"), 400),
    "3.2 half an address of IPv6": (get(host=b"Host: [::1\r\n"), 400),
    "3.2 a whole one": (get(host=b"Host: [::1]:7080\r\n"), 200),
    "3.2 HTTP/1.0 with two hosts": (get(version=b"HTTP/1.0", host=b"Host: x\r\nHost: y\r\n"), 400),
    # 5: headers.
    "5 no colon": (get(b"Nothing\r\n"), 400),
    "5 no name": (get(b": a\r\n"), 400),
    "5.1 a blank before the colon": (get(b"A : b\r\n"), 400),
    "5.1 a name with other characters": (get(b"A[1]: b\r\n"), 400),
    "5.1 blanks around a value": (get(b"A: \t b \t\r\n"), 200),
    "5.2 a folded line": (get(b"A: b\r\n c\r\n"), 400),
    "5.5 a zero byte": (get(b"A: \0\r\n"), 400),
    "5.5 CR within a value": (get(b"A: b\rc\r\n"), 400),
    "5.4 three hundred headers": (get(b"A: b\r\n" * 300), 431),
    "5.4 a header of a megabyte": (get(b"A: " + b"b" * (1 << 20) + b"\r\n"), 431),
    "5.6.1 Connection in several lines": (get(b"Connection: keep-alive\r\nConnection: close\r\n"), 200),
    "two Authorizations": (get(b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400),
    # 6: the body.
    "6 a body of GET": (get(b"Content-Length: 2\r\n") + b"{}", 200),
    "6.2 no digits": (post(b"Content-Length: two\r\n"), 400),
    "6.2 a plus sign": (post(b"Content-Length: +2\r\n", b"{}"), 400),
    "6.2 a minus sign": (post(b"Content-Length: -2\r\n", b"{}"), 400),
    "6.2 in base 16": (post(b"Content-Length: 0x2\r\n", b"{}"), 400),
    "6.2 an empty one": (post(b"Content-Length:\r\n"), 400),
    "6.2 a list": (post(b"Content-Length: 2, 2\r\n", b"{}"), 400),
    "6.2 with a blank within": (post(b"Content-Length: 1 2\r\n", b"{}"), 400),
    "6.2 two that differ": (post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"), 400),
    "6.2 two that agree": (post(b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}"), 400),
    "6.2 beyond all numbers": (post(b"Content-Length: 99999999999999999999\r\n"), TOO_LARGE),
    "6.2 leading zeros": (post(b"Content-Length: 002\r\n", b"{}"), TAKEN),
    "6.2 less than promised": (post(b"Content-Length: 3\r\n", b"{}"), None),
    "6.1 chunks in HTTP/1.0": (b"POST /@ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "6.1 another encoding": (post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 501),
    "6.1 chunks that are not the last": (post(b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"), 400),
    "6.1 the same in two lines": (post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", b"0\r\n\r\n"), 400),
    "6.1 identity": (post(b"Transfer-Encoding: identity\r\n"), 400),
    "6.1 an unknown word": (post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
    "6.1 an empty one": (post(b"Transfer-Encoding:\r\n", b"0\r\n\r\n"), 400),
    "6.1 twice chunked": (post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"), 400),
    "6.1 a hidden one": (post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), 400),
    "6.3 length and chunks": (post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400),
    # 7.1: chunks.
    "7.1 chunks": (chunked(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), TAKEN),
    "7.1 a size in capitals and zeros": (chunked(b"0000000000000A\r\n0123456789\r\n0\r\n\r\n"), TAKEN),
    "7.1 no size": (chunked(b"\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a size that is none": (chunked(b"xyz\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a negative size": (chunked(b"-3\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a size with a prefix": (chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a size with an underscore": (chunked(b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n"), 400),
    "7.1 a blank before the size": (chunked(b" 3\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a blank behind it": (chunked(b"3 \r\nabc\r\n0\r\n\r\n"), 400),
    "7.1 a size beyond all": (chunked(b"fffffffffffffffff\r\n"), TOO_LARGE),
    "7.1 more than the size": (chunked(b"3\r\nabcd\r\n0\r\n\r\n"), 400),
    "7.1 more than the size, and nothing else": (chunked(b"3\r\nabcd"), 400),
    "7.1 LF alone behind a size": (chunked(b"3\nabc\r\n0\r\n\r\n"), 400),
    "7.1 LF alone behind data": (chunked(b"3\r\nabc\n0\r\n\r\n"), 400),
    "7.1 LF alone at the end": (chunked(b"0\r\n\n"), 400),
    "7.1 CR alone behind a size": (chunked(b"3\rabc\r0\r\r"), 400),
    "7.1 no last chunk": (chunked(b"3\r\nabc\r\n"), None),
    "7.1.1 an extension": (chunked(b"3;a=b;c=\"d;e\"\r\nabc\r\n0\r\n\r\n"), TAKEN),
    "7.1.1 blanks around one": (chunked(b"3 ; a = b\r\nabc\r\n0\r\n\r\n"), TAKEN),
    "7.1.1 a semicolon alone": (chunked(b"3;\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1.1 LF alone in one": (chunked(b"3;a\nabc\r\n0\r\n\r\n"), 400),
    "7.1.1 CR alone in one": (chunked(b"3;a\rb\r\nabc\r\n0\r\n\r\n"), 400),
    "7.1.1 one that has no end": (chunked(b"3;a=" + b"b" * 65_536), 400),
    "7.1.2 trailers": (chunked(b"0\r\nA: b\r\nC: d\r\n\r\n"), TAKEN),
    "7.1.2 a trailer that is none": (chunked(b"0\r\nnothing\r\n\r\n"), 400),
    "7.1.2 trailers without an end": (chunked(b"0\r\n" + b"A: b\r\n" * 10_000), 400),
    # RFC 9110, section 10.1.1: expectations.
    "an unknown expectation": (post(b"Expect: 200-ok\r\nContent-Length: 2\r\n"), 417),
    "one beside the known one": (post(b"Expect: 100-continue\r\nExpect: other\r\nContent-Length: 2\r\n"), 417),
    "the known one in HTTP/1.0": (b"POST /@ HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", None),
    # Malformed input.
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
    "zeros": (b"\0" * 100 + b"\r\n", 400),
    "an answer": (b"HTTP/1.1 200 OK\r\n", 400),
}


def answers(data):
    """Returns (status, headers, body) of each answer; interim answers have neither headers nor body."""
    found = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, f"half an answer: {head}"
        first, *lines = head.decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", 0))
        found.append((int(status), headers, data[:length]))
        data = data[length:]
    return found


def exchange(port, request, until=None, timeout=10):
    """Returns the bytes up to the end of the connection, or until `until` answers are complete."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as one:
        data = b""
        try:
            one.sendall(request)
            while part := one.recv(65_536):
                data += part
                if until and data.count(b"\r\n\r\n") >= until:
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
        return data


def filled(gateway, listener, request):
    """Returns the request with its path inserted."""
    path, lines = b"/v2/" + gateway.app["appId"].encode() + b"/auth", b""
    if listener == "admin":
        path, lines = b"/v1/handoff/lease", b"Authorization: Bearer " + ADMIN_TOKEN.encode() + b"\r\n"
    return re.sub(rb"/@( HTTP/1\.\d\r\n)", lambda found: path + found[1] + lines, request)


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_requests_at_the_edges(gateway, listener):
    """Sends all cases at once, each on a separate connection."""
    port = getattr(gateway, listener)
    open_ones = []
    for name, (request, status) in CASES.items():
        one = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            one.sendall(filled(gateway, listener, request))
        except (ConnectionResetError, BrokenPipeError):
            pass
        open_ones.append((name, one, status))
    wrong = []
    for name, one, status in open_ones:
        status = status[listener] if isinstance(status, dict) else status
        with one:
            if status is None:
                one.setblocking(False)
                try:
                    wrong.append((name, one.recv(100), None))
                except BlockingIOError:
                    pass
                continue
            try:
                data = one.recv(65_536)
            except (TimeoutError, ConnectionResetError) as error:
                data = b"HTTP/1.1 0 " + str(error).encode()
            found = int((data or b"HTTP/1.1 0 ").split(b" ")[1])
            if status == TAKEN:
                if b"\r\nConnection: close\r\n" in data or found not in (200, 400):
                    wrong.append((name, data, status))
            elif found != status:
                wrong.append((name, found, status))
            elif found in (400, 413, 414, 417, 431, 501, 505) and b"\r\nConnection: close\r\n" not in data:
                wrong.append((name, "keeps the connection", data))
            elif found == 405 and b"\r\nAllow: GET, HEAD\r\n" not in data:
                wrong.append((name, "no Allow", data))
    assert not wrong


def test_what_stands_behind_a_refused_request_is_none(gateway):
    for name, (request, status) in CASES.items():
        if status not in (400, 501):
            continue
        found = answers(exchange(gateway.http, filled(gateway, "http", request) + get(target=b"/smuggled")))
        assert len(found) <= 1, name


@pytest.mark.parametrize("listener", ["http", "admin"])
def test_head_is_served_wherever_get_is(gateway, new_device, listener):
    device = new_device(gateway)
    app, port = gateway.app["appId"], getattr(gateway, listener)
    token = gateway.authenticate()
    if listener == "admin":
        lines = b"Authorization: Bearer " + ADMIN_TOKEN.encode() + b"\r\n"
        paths = ["/healthz", "/readyz", "/metrics", "/console", "/console/", "/v1/apps", f"/v1/apps/{app}", f"/v1/apps/{app}/devices",
                 f"/v1/apps/{app}/devices/{device.cid}", f"/v1/apps/{app}/devices/{device.cid}/messages", "/v1/cluster", "/v1/backup",
                 "/v1/drain", "/v1/handoff/jobs", f"/v1/apps/{app}/upstream", f"/v1/apps/{app}/events", "/v1/messages/no-such", "/none"]
    else:
        lines = b"token: " + token.encode() + b"\r\n"
        paths = ["/healthz", "/readyz", "/v2/check", f"/v2/{app}/user/status/{device.cid}", f"/v2/{app}/user/detail/{device.cid}",
                 f"/v2/{app}/report/push/count", f"/v2/{app}/user/alias/cid/{device.cid}", "/none"]
    for path in paths:
        request = get(lines + b"Connection: close\r\n", path.encode(), method=b"%s")
        (status, headers, body), = answers(exchange(port, request % b"GET"))
        data = exchange(port, request % b"HEAD")
        head, _, rest = data.partition(b"\r\n\r\n")
        assert int(head.split(b" ")[1]) == status and rest == b"", path
        assert status in (200, 400, 404, 409), path
        said = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        assert said["Content-Type"] == headers["content-type"] and "Content-Length" in said, path
        if path != "/metrics":
            assert int(said["Content-Length"]) == len(body), path
        if status == 200 and "/console" not in path:
            (status, headers, _), = answers(exchange(port, request.replace(b"%s", b"PUT")))
            assert status == 405 and headers["allow"].startswith("GET, HEAD"), path


def test_connections_go_on_and_end_as_they_say(gateway):
    ten = exchange(gateway.http, get() * 9 + get(b"Connection: close\r\n"))
    assert [status for status, _, _ in answers(ten)] == [200] * 10
    # A connection of HTTP/1.0 ends, unless the client asks for keep-alive.
    old = get(version=b"HTTP/1.0", host=b"")
    assert len(answers(exchange(gateway.http, old + old))) == 1
    kept = get(b"Connection: keep-alive\r\n", version=b"HTTP/1.0", host=b"")
    found = answers(exchange(gateway.http, kept + old))
    assert len(found) == 2 and found[0][1]["connection"] == "keep-alive"
    # The connection stays open after a refused request whose body was read.
    found = answers(exchange(gateway.http, get(b"Content-Length: 2\r\n", method=b"PUT") + b"{}" + get(b"Connection: close\r\n")))
    assert [status for status, _, _ in found] == [405, 200]
    assert "date" in found[0][1]


def test_a_client_that_waits_to_be_told_to_go_on_is_told(gateway):
    with socket.create_connection(("127.0.0.1", gateway.http), timeout=10) as one:
        one.sendall(get(b"Expect: 100-continue\r\nContent-Length: 2\r\n", method=b"PUT"))
        assert one.recv(1_000).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"{}")
        assert one.recv(1_000).startswith(b"HTTP/1.1 405 ")
        # A request whose body has already arrived gets no interim answer.
        one.sendall(get(b"Expect: 100-continue\r\nContent-Length: 2\r\n", method=b"PUT") + b"{}")
        assert one.recv(1_000).startswith(b"HTTP/1.1 405 ")


def test_a_token_that_is_given_in_two_ways_is_none(gateway):
    token, app = gateway.authenticate().encode(), gateway.app["appId"].encode()
    target = b"/v2/" + app + b"/report/push/count"
    for lines, wanted in ((b"token: " + token, 200), (b"token: " + token + b"\r\ntoken: " + token, 200), (b"token: " + token + b"\r\ntoken: x", 401)):
        (status, _, _), = answers(exchange(gateway.http, get(lines + b"\r\nConnection: close\r\n", target)))
        assert status == wanted, lines
