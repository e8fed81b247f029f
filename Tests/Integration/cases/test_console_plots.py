"""The console's plots: the units of their axes, and values by pointer and keyboard."""

import re

import pytest
from gateway import ADMIN_TOKEN, eventually
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys


@pytest.fixture
def plots(page, gateway, new_device):
    """The overview with some points, of devices that came one by one."""
    page.sign_in(ADMIN_TOKEN)
    page.find("polyline.line-0")
    for _ in range(2):
        count = points(page)
        new_device(gateway)
        page.until(lambda: points(page) >= count + 1, "the next point")  # noqa: B023
    return page


def points(page):
    return page.driver.execute_script(
        "return [...document.querySelectorAll('.reader')].at(-1).querySelector('polyline').getAttribute('points').split(' ').length")


def value(page):
    """The chosen time, the figures of the last plot's legend, and what a screen reader says of it."""
    return page.driver.execute_script("""
        const figure = [...document.querySelectorAll('figure.plot')].at(-1);
        return {time: figure.querySelector('.legend time')?.innerText ?? null, text: figure.querySelector('.reader').ariaValueText,
                figures: [...figure.querySelectorAll('.legend b')].map(one => one.innerText), cursors: document.querySelectorAll('.cursor').length};""")


def test_the_arrow_keys_choose_a_time(plots):
    reader = plots.all(".reader")[-1]
    before = value(plots)
    assert before["time"] is None and before["cursors"] == 0 and before["text"].startswith("devices ")
    plots.driver.execute_script("arguments[0].focus()", reader)
    reader.send_keys(Keys.HOME)
    first = value(plots)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first["time"]) and first["cursors"] == 1
    assert first["text"] == f"{first['time']}: devices {first['figures'][0]}, HTTP {first['figures'][1]}"
    reader.send_keys(Keys.END)
    last = value(plots)
    assert last["time"] > first["time"] and int(last["figures"][0]) > int(first["figures"][0])
    reader.send_keys(Keys.ARROW_LEFT)
    assert first["time"] <= value(plots)["time"] < last["time"]
    # The chosen time stays over a refresh, and so does the focus.
    chosen, count = value(plots), points(plots)
    plots.until(lambda: points(plots) > count, "the next point")
    assert value(plots) == chosen and plots.driver.switch_to.active_element == reader
    reader.send_keys(Keys.ESCAPE)
    assert value(plots)["time"] is None
    reader.send_keys(Keys.HOME)
    assert value(plots)["time"] == first["time"]
    # Tab leaves the plot, and the newest values are shown again.
    reader.send_keys(Keys.TAB)
    assert value(plots)["time"] is None and value(plots)["cursors"] == 0


def test_the_pointer_chooses_a_time(plots):
    reader = plots.all(".reader")[-1]
    plots.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", reader)
    ActionChains(plots.driver).move_to_element_with_offset(reader, int(reader.size["width"] * 0.49), 0).perform()
    near = value(plots)
    assert near["time"] and near["cursors"] == 1
    # The first point is the nearest to the left end.
    ActionChains(plots.driver).move_to_element_with_offset(reader, -int(reader.size["width"] * 0.4), 0).perform()
    far = value(plots)
    assert far["time"] < near["time"]
    ActionChains(plots.driver).move_to_element(plots.find("h1")).perform()
    assert value(plots)["time"] is None


def test_the_gateway_keeps_the_points_from_before_the_page_was_opened(page, gateway, new_device):
    new_device(gateway)

    def sessions_of(kept):
        return next(one for one in kept["series"] if one["metric"] == "longwire_sessions")

    def answer():
        """The points, once the last of them has the device."""
        kept = gateway.call("GET", "/v1/metrics/history", port=gateway.admin, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        return kept if len(kept["times"]) > 1 and sessions_of(kept)["values"][-1] >= 1 else None

    kept = eventually(answer, "a point with the device")
    assert kept["intervalSeconds"] == 10 and len(kept["series"]) == 10
    assert all(len(one["values"]) == len(kept["times"]) for one in kept["series"])
    assert sessions_of(kept)["kind"] == "gauge" and sessions_of(kept)["labels"] == {"role": "device"}
    opened = page.driver.execute_script("return Date.now()")
    page.sign_in(ADMIN_TOKEN)
    page.find("polyline.line-0")
    read = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/console/metrics.js').then(({history}) => done([history.gauge('longwire_sessions', {role: 'device'}), history.pages[0].time]));""")
    points_read, first = read
    before = [(time, value) for time, value in points_read if time < opened]
    assert len(before) >= len(kept["times"]) - 1 and before[-1][1] >= 1
    assert [time for time, _ in points_read] == sorted({time for time, _ in points_read}) and first >= opened


def test_points_of_the_gateway_end_where_the_pages_of_the_tab_begin(page):
    points_read = page.driver.execute_async_script("""
        const done = arguments[0];
        import('/console/metrics.js').then(({History}) => {
          const history = new History(300_000), name = 'longwire_messages_accepted_total';
          const answer = {time: 1_000_000, times: [980_000, 990_000, 1_000_000], series: [{metric: name, labels: {}, kind: 'rate', values: [null, 5, 7]}]};
          const page = (accepted, uptime) => `${name} ${accepted}\nlongwire_uptime_seconds ${uptime}\n`;
          const found = [];
          history.takeOlder(answer, 2_000_400);
          found.push(history.rate(name));
          history.read(page(10, 50), 1_995_400);
          history.read(page(30, 52), 1_997_400);
          found.push(history.rate(name));
          // The same offset, although this answer took longer.
          history.takeOlder({...answer, time: 1_001_000}, 2_002_000);
          found.push(history.rate(name)[0]);
          // The range of the plots grows with the points.
          found.push([280, 600, 1_800, 3_000].map(age => {
            history.takeOlder({...answer, times: [1_000_000 - age * 1_000, 990_000, 1_000_000], series: [{...answer.series[0], values: [1, 2, 3]}]}, 2_000_400);
            return history.range / 60_000;
          }));
          // A restart of the gateway.
          history.read(page(0, 1), 1_999_400);
          found.push(history.rate(name));
          done(found);
        });""")
    assert points_read == [[[1_990_400, 5], [2_000_400, 7]], [[1_990_400, 5], [1_997_400, 10]], [1_990_400, 5], [5, 15, 30, 60], []]


def axis(page, unit, top):
    return page.driver.execute_async_script("""
        const [unit, top, done] = arguments;
        import('/console/plot.js').then(({axis}) => done(axis(unit, top).map(([value, label]) => label)));""", unit, top)


@pytest.mark.parametrize("unit, top, labels", [
    ("count", 0, ["0", "1"]), ("count", 1, ["0", "1"]), ("count", 2, ["0", "1", "2"]), ("count", 4, ["0", "2", "4"]), ("count", 120, ["0", "50", "100", "150"]),
    ("count", 45_000, ["0", "20k", "40k", "60k"]), ("rate", 0.5, ["0", "0.2", "0.4", "0.6"]), ("rate", 31, ["0", "20", "40"]),
    ("duration", 0, ["0", "1 s"]), ("duration", 0.0007, ["0", "500 µs", "1 ms"]), ("duration", 0.025, ["0", "10 ms", "20 ms", "30 ms"]),
    ("duration", 0.7, ["0", "500 ms", "1 s"]), ("duration", 4, ["0", "2 s", "4 s"]), ("duration", 50, ["0", "30 s", "60 s"]),
    ("duration", 100, ["0", "1 min", "2 min"]), ("duration", 1_000, ["0", "10 min", "20 min"]), ("duration", 1_900, ["0", "15 min", "30 min", "45 min"]),
    ("duration", 5_000, ["0", "30 min", "60 min", "90 min"]), ("duration", 20_000, ["0", "2 h", "4 h", "6 h"]), ("duration", 300_000, ["0", "2 d", "4 d"]),
    ("bytes", 0, ["0 B", "1 KiB"]), ("bytes", 10_000, ["0 B", "4 KiB", "8 KiB", "12 KiB"]), ("bytes", 700_000, ["0 B", "256 KiB", "512 KiB", "768 KiB"]),
    ("bytes", 5 << 30, ["0 B", "2 GiB", "4 GiB", "6 GiB"]),
])
def test_the_steps_of_an_axis(page, unit, top, labels):
    assert axis(page, unit, top) == labels
