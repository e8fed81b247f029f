"""The console's device page in a real browser: over its WebSocket, with the package of Clients/javascript."""

import random

import pytest
from browser import Page
from gateway import ADMIN_TOKEN, APP, eventually
from longwire_client import pb
from selenium.webdriver.common.keys import Keys


@pytest.fixture
def page(page):
    """Returns the console after sign-in."""
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    return page


def become_device(page):
    page.go("#/device")
    page.type("main input[type=password]", APP["appSecret"] + Keys.ENTER)
    page.shows("connected", ".facts")
    return state(page)["cid"]


def state(page):
    """Returns the stored state of the page's device: the values of each line by the first word."""
    text = page.driver.execute_script("return localStorage.getItem('longwire.state.demo')")
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)


def rows(page):
    """Returns the displayed messages, newest first: sequence, payload, flags."""
    return page.driver.execute_script(
        "return [...document.querySelectorAll('main tbody tr')].map(row => [1, 2, 3].map(cell => row.children[cell].innerText))")


def test_a_newcomer_sees_a_push_arrive_without_a_phone(page, gateway):
    """Leads from the form that sends to the device page through the form's own button."""
    page.go("#/send")
    page.click("a[href^='#/device/']")
    cid = become_device(page)
    assert APP["appSecret"] not in page.driver.execute_script("return JSON.stringify({...localStorage, ...sessionStorage})")
    view = gateway.view(cid)
    assert view["connected"] and view["reachable"] and view["state"] == "foreground"
    assert view["attributes"]["platform"] == "web" and view["attributes"]["timeZone"]
    page.click("p.buttons button:nth-of-type(2)")
    page.until(lambda: len(rows(page)) == 1, "the message")
    gateway.push(cid, "from a server")
    page.until(lambda: len(rows(page)) == 2, "the second message")
    assert rows(page)[0][1:] == ["from a server", "live"]
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the acks")
    assert state(page)["stream"] == "0 2"
    page.go(f"#/send/demo/{cid}")
    page.click("main form button.main")
    page.click("dialog button.danger")
    page.shows("Sent over the device's connection.")
    page.click("a[href='#/device/demo']")
    page.until(lambda: [row[0] for row in rows(page)] == ["3", "2", "1"], "the third, which came while another page was shown")


def test_what_came_while_it_was_away_is_flagged_and_nothing_comes_twice(page, gateway):
    cid = become_device(page)
    gateway.push(cid, "one")
    page.until(lambda: len(rows(page)) == 1, "the first message")
    page.click("p.buttons button:nth-of-type(1)")
    page.shows("not connected", ".facts")
    eventually(lambda: not gateway.view(cid)["connected"], "the device as absent")
    gateway.push(cid, "two")
    page.driver.refresh()
    page.find("main")
    page.go("#/device/demo")
    page.until(lambda: len(rows(page)) == 2, "the message that waited")
    assert rows(page) == [["2", "two", "offline"], ["1", "one", "live"]]
    # Lost acks: the gateway sends the messages again, and the page acks them without displaying them.
    page.click("p.buttons button:nth-of-type(1)")
    eventually(lambda: not gateway.view(cid)["connected"], "the device as absent")
    gateway.push(cid, "three")
    page.driver.execute_script("""
        WebSocket.prototype.realSend = WebSocket.prototype.send;
        WebSocket.prototype.send = function (data) { if (new Uint8Array(data)[0] !== 7) this.realSend(data); };""")
    page.click("p.buttons button:nth-of-type(1)")
    page.until(lambda: len(rows(page)) == 3, "the third message")
    page.click("p.buttons button:nth-of-type(1)")
    eventually(lambda: not gateway.view(cid)["connected"], "the device as absent")
    assert gateway.view(cid)["queue"]["messages"] == 1, "its ack was lost"
    # A client without its position would receive the message again. This one's Hello covers it, so it is settled there.
    page.driver.execute_script("""
        WebSocket.prototype.send = WebSocket.prototype.realSend;""")
    page.click("p.buttons button:nth-of-type(1)")
    page.shows("connected", ".facts")
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "the position that the Hello names")
    assert [row[1] for row in rows(page)] == ["three", "two", "one"]


def test_it_says_when_it_is_in_the_background(page, gateway):
    cid = become_device(page)
    page.click("input[value=background]")
    eventually(lambda: gateway.view(cid)["state"] == "background", "the background")
    gateway.push(cid, "quietly")
    page.click("input[value=foreground]")
    eventually(lambda: gateway.view(cid)["state"] == "foreground", "the foreground")
    page.until(lambda: [row[1] for row in rows(page)] == ["quietly"], "the message, once")
    eventually(lambda: gateway.view(cid)["queue"]["messages"] == 0, "its ack")
    # With the keyboard only: the arrow key of the group.
    page.find("input[value=foreground]").send_keys(Keys.ARROW_RIGHT)
    eventually(lambda: gateway.view(cid)["state"] == "background", "the background again")


def test_a_wrong_secret_is_told_and_a_second_tab_stops_the_first(page, gateway):
    page.go("#/device")
    page.type("main input[type=password]", "not the secret" + Keys.ENTER)
    page.shows("401")
    cid = become_device(page)
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        page.open()
        page.sign_in(ADMIN_TOKEN)
        page.find(".tiles")
        page.go("#/device/demo")
        page.shows("connected", ".facts")
    finally:
        page.driver.switch_to.window(first)
    page.shows("another tab took over")
    page.shows("ended", ".facts")
    assert gateway.view(cid)["connected"]
    page.driver.switch_to.window(page.driver.window_handles[-1])
    page.driver.close()
    page.driver.switch_to.window(first)


def test_it_comes_back_after_the_gateway_was_away(driver, own_gateway):
    gateway = own_gateway()
    page = Page(driver, gateway)
    page.open()
    page.sign_in(ADMIN_TOKEN)
    page.find(".tiles")
    cid = become_device(page)
    gateway.kill()
    page.shows("reconnecting", ".facts")
    gateway.start()
    page.until(lambda: "reconnecting" not in page.text(".facts") and "connected" in page.text(".facts"), "the device again")
    gateway.push(cid, "after the crash")
    page.until(lambda: [row[1] for row in rows(page)] == ["after the crash"], "the message")
    page.click("button.danger")
    page.click("dialog button.danger")
    page.find("main input[type=password]")
    assert driver.execute_script("return localStorage.getItem('longwire.state.demo')") is None
    driver.get_log("browser")


def test_a_page_without_the_browsers_own_cryptography_is_a_device_too(page, gateway):
    """A page over plain http from another machine has no crypto.subtle and no Web Locks."""
    page.driver.execute_script("""
        Object.defineProperty(Crypto.prototype, 'subtle', {get() { return undefined; }});
        Object.defineProperty(Navigator.prototype, 'locks', {get() { return undefined; }});""")
    cid = become_device(page)
    gateway.push(cid, "to a plain page")
    page.until(lambda: [row[1] for row in rows(page)] == ["to a plain page"], "the message")


# The codec compared with protobuf's own

SAMPLES = {
    "hello": pb.Hello, "welcome": pb.Welcome, "close": pb.Close, "ping": pb.Ping, "pong": pb.Pong, "deliver": pb.Deliver,
    "ack": pb.Ack, "deviceUpdate": pb.DeviceUpdate, "updateResult": pb.UpdateResult, "feedback": pb.Feedback, "revoke": pb.Revoke,
    "upstream": pb.Upstream, "upstreamResult": pb.UpstreamResult,
}
# Fields whose 64 bits the client only repeats, and other fields of bytes than identifiers.
LONG = ("queue_epoch", "generation")
RAW = {"payload": (1, 16, 300), "proof": (1, 32), "device_secret": (1, 32, 64)}


def name_of(field):
    """Returns the client's name of a field."""
    first, *others = field.name.replace("_min_ms", "_minimum").replace("_max_ms", "_maximum").split("_")
    return first + "".join(word.capitalize() for word in others)


def is_long(field):
    return field.name in LONG or field.name == "nonce" and field.type != field.TYPE_BYTES


DECODE = """
const [frames, done] = arguments;
import('/console/client/frames.js').then(({FrameReader, hex}) => {
  const plain = value => value instanceof Uint8Array ? hex(value)
    : Array.isArray(value) ? value.map(plain) : value && typeof value === 'object'
    ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plain(one)])) : value;
  // Pieces that fit no boundary.
  const reader = new FrameReader(), bytes = Uint8Array.from(frames), found = [];
  for (let place = 0; place < bytes.length; place += 7) found.push(...reader.take(bytes.subarray(place, place + 7)));
  done(found.map(frame => [frame.name, plain(frame.values)]));
}).catch(error => done(String(error)));
"""
ENCODE = """
const [name, values, done] = arguments;
import('/console/client/frames.js').then(({encode, bytesOfHex}) => {
  for (const key of ['proof', 'payload', 'deviceSecret']) if (values[key]) values[key] = bytesOfHex(values[key]);
  if (name === 'hello' && values.nonce) values.nonce = bytesOfHex(values.nonce);
  done([...encode(name, values)]);
}).catch(error => done(String(error)));
"""


def sample_value(field, draw):
    if field.message_type:
        return sample(getattr(pb, field.message_type.name), draw.random())
    if field.type == field.TYPE_BYTES:
        return draw.randbytes(draw.choice(RAW.get(field.name, (16,))))
    if field.type == field.TYPE_STRING:
        return draw.choice(("a", "您好 🎉", "x" * 200))
    if field.type == field.TYPE_SINT32:
        return draw.choice((0, -1, 1, 2**31 - 1, -(2**31)))
    if field.type in (field.TYPE_BOOL, field.TYPE_ENUM):
        return draw.choice((0, 1)) if field.has_presence else 1
    top = 2**64 - 1 if is_long(field) else 2**32 - 1 if field.type == field.TYPE_UINT32 else 2**53 - 1
    return draw.choice((1, 127, 128, 300, 2**31, top))


def sample(kind, seed):
    """Returns a message with most fields set, from a seed."""
    draw = random.Random(seed)
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw.random() < 0.2:
            continue
        if field.label == field.LABEL_REPEATED:
            getattr(message, field.name).extend([sample_value(field, draw), sample_value(field, draw)])
        elif field.message_type:
            getattr(message, field.name).CopyFrom(sample_value(field, draw))
        else:
            setattr(message, field.name, sample_value(field, draw))
    return message


def expected(message):
    """Returns the client's decoding of a message: every field, with its default."""
    def plain(field, value):
        if field.message_type:
            return expected(value)
        if field.type == field.TYPE_BYTES:
            return value.hex()
        return str(value) if is_long(field) else value

    values = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.label == field.LABEL_REPEATED:
            values[name_of(field)] = [plain(field, one) for one in value]
        else:
            values[name_of(field)] = None if field.has_presence and not message.HasField(field.name) else plain(field, value)
    return values


def test_the_coding_agrees_with_protobuf(page):
    import longwire_client

    messages = [(name, sample(kind, f"{name} {seed}")) for name, kind in SAMPLES.items() for seed in range(4)]
    stream = b"".join(longwire_client.encode(message) for _, message in messages)
    # An unknown field is skipped.
    stream += bytes([5, 0, 0, 7, 8, 3, 0xA2, 6, 2, 65, 66])
    found = page.driver.execute_async_script(DECODE, list(stream))
    assert found == [[name, expected(message)] for name, message in messages] + [["pong", {"nonce": "3"}]]
    for name, message in messages:
        text = bytes(page.driver.execute_async_script(ENCODE, name, expected(message)))
        assert longwire_client.MESSAGES[text[0]] is SAMPLES[name] and int.from_bytes(text[1:4], "big") == len(text) - 4
        assert SAMPLES[name].FromString(text[4:]) == message, name
    # The state is optional, so its zero is written.
    zero = bytes(page.driver.execute_async_script(ENCODE, "deviceUpdate", {"request": 1, "applicationState": 0}))
    assert pb.DeviceUpdate.FromString(zero[4:]).HasField("application_state")


@pytest.mark.parametrize("bad", ["06 00 00 01 ff", "06 00 00 02 10 80", "06 00 00 03 2a 05 61", "02 00 00 01 07", "03 00 00 04 12 02 c3 28",
                                 "06 00 00 0c 10 ff ff ff ff ff ff ff ff ff 7f 00", "06 00 00 03 1a 01 07", "12 00 00 00", "06 01 00 01"])
def test_the_coding_refuses_what_is_no_message(page, bad):
    assert page.driver.execute_async_script(DECODE, list(bytes.fromhex(bad))).startswith("BadFrame: ")
