"""The pure parts of `Tests/Benchmarks/peers.py`: ratios, goals, the table, and a run without peers."""

import json
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "Benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import contract  # noqa: E402
import peers  # noqa: E402
import servers  # noqa: E402

SIZES = {"devices": "19,000"}
CPU = contract.Row("live, {devices} devices: CPU a message", "live", "serverCPU", "µs", "≤ 1.5", "bare router")
RATE = contract.Row("steady", "steady", "rate", "/s", "≥ 130,000")


def sides(ours, theirs):
    return {"longwire": {"serverCPU": ours}, "bare router": {"serverCPU": theirs}}


def test_a_ratio_is_of_one_run_and_its_median_over_the_runs():
    runs = [sides(10_000, 10_000), sides(30_000, 10_000), sides(80_000, 40_000)]
    found = contract.summarise(CPU, runs, {}, SIZES)
    assert found["values"] == [1.0, 3.0, 2.0]
    # The ratio of the medians would be 3.
    assert (found["median"], found["lowest"], found["highest"], found["reached"]) == (2.0, 1.0, 3.0, False)
    assert found["what"] == "live, 19,000 devices: CPU a message"
    assert contract.markdown([found]).split("\n")[2] == (
        "| live, 19,000 devices: CPU a message | 30.0 µs | bare router 10.0 µs | **2.00 ×** | 1.00 × – 3.00 × "
        "| ≤ 1.5 | **no** |")


@pytest.mark.parametrize("goal, below, above", [("≤ 1.5", True, False), ("≥ 1.5", False, True), ("", None, None)])
def test_goals(goal, below, above):
    assert contract.reaches(1.4, goal) is below and contract.reaches(1.6, goal) is above
    if goal:
        assert contract.reaches(1.5, goal) is True, "the bound itself keeps the goal"


def test_a_busy_machine_spoils_rates_and_latencies_only():
    runs = [{"longwire": {"rate": 131_000.0, "serverCPU": 1.0}, "bare router": {"serverCPU": 1.0}}]
    rate, cpu = (contract.summarise(row, runs, {}, SIZES, busy=0.3) for row in (RATE, CPU))
    assert rate["reached"] is None and cpu["reached"] is True
    assert "| busy machine |" in contract.markdown([rate])
    assert contract.summarise(RATE, runs, {}, {}, busy=contract.QUIET_CORES)["reached"] is True


def test_a_figure_without_a_peer_is_itself():
    found = contract.summarise(RATE, [{"longwire": {"rate": 131_000.0}}], {}, {})
    assert found["reached"] is True and found["beside"] is None
    assert contract.markdown([found]).split("\n")[2] == (
        "| steady |  |  | **131,000/s** |  | ≥ 130,000/s | yes |")


def test_a_missing_peer_is_named_and_takes_nothing_else_away():
    runs = [{"longwire": {"serverCPU": 10.0}}]
    found = contract.summarise(CPU, runs, {("live", "bare router"): "there is no cc"}, SIZES)
    assert found["median"] is None and found["reached"] is None
    assert "skipped: there is no cc" in contract.markdown([found])
    assert "not measured" in contract.markdown([contract.summarise(CPU, [], {}, SIZES)])
    assert "the load ended" in contract.markdown([contract.summarise(CPU, [], {("live", "longwire"): "the load ended"}, SIZES)])


def test_a_run_with_one_side_only_counts_for_nothing():
    runs = [sides(20.0, 10.0), {"longwire": {"serverCPU": 99.0}}, sides(20.0, 0)]
    assert contract.summarise(CPU, runs, {}, SIZES)["values"] == [2.0]


def test_units():
    assert [contract.text(1_234_567, unit) for unit in ("/s", "B", "µs", "ms")] == [
        "1,234,567/s", "1,234,567 B", "1,234.6 µs", "1.23 ms"]


def test_metrics_with_labels_are_read():
    page = ["# HELP a_total What.", 'a_total{state="x y",type="z"} 3', "b 1.5e3", ""]
    assert contract.exposition(page) == {'a_total{state="x y",type="z"}': 3.0, "b": 1500.0}


def test_a_rate_is_taken_between_the_nearest_samples():
    samples = [(0.0, 0), (19.9, 1_000), (35.0, 9_999), (50.1, 4_020)]
    assert contract.rate_between(samples, 20, 50) == pytest.approx(100.0)
    with pytest.raises(ValueError):
        contract.rate_between(samples[:1], 20, 50)


def test_every_row_has_a_load_that_measures_its_sides():
    settings = peers.parse([])
    settings.folder = settings.binaries = pathlib.Path()
    loads = peers.Loads(settings)
    for row in contract.ROWS:
        assert row.group in peers.ALWAYS + peers.NAMED
        measured = loads.sides(row.group)
        assert "longwire" in measured and (not row.peer or row.peer in measured), row
    assert {row.group for row in contract.ROWS} == set(peers.ALWAYS + peers.NAMED)


def test_a_load_that_fails_leaves_the_others_and_the_exit_code(tmp_path, monkeypatch, capsys):
    class Loads:
        def sides(self, name):
            def missing():
                raise servers.Missing("there is no nginx")

            def failing():
                raise servers.Failed("the load ended")

            return {"http": {"longwire": lambda: {"serverCPU": 9_000, "rate": 5.0}, "nginx": missing},
                    "drain": {"longwire": failing}}[name]

    monkeypatch.setattr(peers, "busy_cores", lambda: 0.2)
    settings = peers.parse(["--only", "http,drain", "--runs", "2", "--json", str(tmp_path / "found.json")])
    settings.sizes = {}
    campaign = peers.Campaign(settings, Loads())
    campaign.run()
    assert len(campaign.failed) == 2 and all("the load ended" in line for line in campaign.failed)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["measured"]["http"] == [{"longwire": {"serverCPU": 9_000, "rate": 5.0}}] * 2
    skipped = {row["what"]: row["skipped"] for row in found["rows"]}
    assert skipped["push/single/cid with delivery and ack: CPU a request"] == "there is no nginx"
    assert skipped["cold drain, 10,000 × 100"] == "the load ended"
    assert "up to 0.20 cores" in found["notes"][0]
    assert "SKIPPED, there is no nginx" in capsys.readouterr().err


def test_a_server_is_stopped_by_its_process_id_and_its_folder_goes(tmp_path):
    class Sleeper(servers.Server):
        def start(self):
            self.port, = servers.free_ports(1)
            self.spawn(sys.executable, "-c", f"import http.server as h; h.HTTPServer(('127.0.0.1', {self.port}), "
                       "h.BaseHTTPRequestHandler).serve_forever()")

    with Sleeper(tmp_path, "sleeper") as server:
        assert server.process.poll() is None and server.cpu() > 0 and server.folder.exists()
    assert server.process.poll() is not None and not server.folder.exists()
    with pytest.raises(servers.Missing, match="install-dependencies.sh"):
        servers.need("no-such-program-anywhere")
