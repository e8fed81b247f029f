"""The Debian packages: installed, started, upgraded, removed and purged in a root folder without other Longwire or Swift files.

The packages are built by deploy/debian/build.sh, as in `make deb`, from the programs of the other tests. These programs use
shared Swift libraries, which the packages then include; `make deb` links them statically.
"""

import configparser
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess

import pytest
from clean_root import CleanRoot
from gateway import Gateway, binary, eventually, free_ports
from longwire_client import Device
from service_manager import ServiceManager
from test_service import is_open, sender_files

HERE = pathlib.Path(__file__).resolve().parents[3]
UNITS = HERE / "deploy/systemd"
PROGRAMS = ["longwire", "longwired", "longwire-sender"]


# Packages


def build(folder, *words):
    """Runs deploy/debian/build.sh; returns the packages by name."""
    command = [str(HERE / "deploy/debian/build.sh"), "--binaries", os.path.dirname(binary("longwired")), "--fast"]
    done = subprocess.run([*command, "--output", str(folder), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {path.name.split("_")[0]: path for path in map(pathlib.Path, done.stdout.split())}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    made = {"1.0.0": build(folder, "--version", "1.0.0"), "1.0.1": {}}
    for name, package in made["1.0.0"].items():
        # The same programs as a higher version.
        inside = folder / name
        subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(inside)], check=True)
        control = inside / "DEBIAN/control"
        control.write_text(control.read_text().replace("Version: 1.0.0", "Version: 1.0.1"))
        made["1.0.1"][name] = folder / f"{name}_1.0.1.deb"
        subprocess.run(["dpkg-deb", "-Znone", "--build", str(inside), str(made["1.0.1"][name])], check=True, capture_output=True)
        shutil.rmtree(inside)
    return made


@pytest.mark.parametrize("code, isRestarted", [(0, True), (65, True), (78, False)])
@pytest.mark.parametrize("package, verb", [("longwire", "restart"), ("longwire-sender", "try-restart")])
def test_an_upgrade_restarts_unless_the_configuration_is_refused(tmp_path, package, verb, code, isRestarted):
    """Runs only the package's script, with its commands replaced."""
    calls, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    for name, ends in (("deb-systemd-helper", 0), ("deb-systemd-invoke", 0), ("systemctl", 0), ("runuser", code)):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\nexit {ends}\n')
        (tools / name).chmod(0o755)
    script = (HERE / f"deploy/debian/{package}/postinst").read_text().replace("/run/systemd/system", str(tools))
    done = subprocess.run(["sh", "-c", script, "postinst", "abort-upgrade", "1.0.0"], capture_output=True, text=True, timeout=30,
                          env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert done.returncode == 0, done
    assert (f"deb-systemd-invoke {verb} " in calls.read_text()) == isRestarted, calls.read_text()
    assert ("a certificate that" in done.stderr, "not restarted" in done.stderr) == (code == 65, code == 78), done.stderr


@pytest.fixture
def root(packages, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a root folder of its own needs root")
    depends = [field(path, "Depends") for path in packages["1.0.0"].values()]
    root = CleanRoot(tmp_path / "root", ", ".join(depends))
    root.processes = []
    yield root
    root.remove(root.processes)


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", str(package), name], check=True, capture_output=True, text=True).stdout.strip()


class Unit:
    """A parsed service file; the test stands in for systemd."""

    def __init__(self, root, name):
        parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
        parser.optionxform = str
        parser.read(root.folder / f"lib/systemd/system/{name}.service")
        self.service = dict(parser["Service"])
        self.words = self.service["ExecStart"].split()
        self.user = self.service["User"]


def start(root, name):
    """Starts a service by its unit and waits for its readiness; returns the process and its manager."""
    unit = Unit(root, name)
    assert unit.service["Type"] == "notify"
    (root.folder / "run/systemd").mkdir(exist_ok=True)
    manager = ServiceManager(root.folder / "run/systemd/notify", inside="/run/systemd/notify")
    with open(root.folder / f"tmp/{name}.log", "ab") as log:
        environment, umask = manager.environment(30_000_000), int(unit.service["UMask"], 8)
        process = root.start(unit.words, unit.user, environment, log, umask)
    root.processes.append(process)
    try:
        manager.expects("READY=1")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(root.folder / f'tmp/{name}.log').read_text()}") from None
    return process, manager


def stop(process, manager):
    process.send_signal(signal.SIGTERM)
    manager.expects("STOPPING=1")
    assert process.wait(60) == 0
    manager.__exit__()


def configure(root, ports, **more):
    """Sets free ports in the installed configuration, as an administrator would edit the file."""
    file = root.folder / "etc/longwire/gateway.json5"
    text = file.read_text()
    for old, new in zip((7000, 7080, 7001, 7081), ports):
        assert f"127.0.0.1:{old}" in text
        text = text.replace(f'"127.0.0.1:{old}"', f'"127.0.0.1:{new}"')
    for line in more.values():
        text = text.replace("  demo: true,", f"  demo: true,\n  {line},")
    file.write_text(text)
    return text


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names_of(root, path):
    """Returns owner and group of a path by the root's own lists."""
    users = {line.split(":")[2]: line.split(":")[0] for line in (root.folder / "etc/passwd").read_text().splitlines()}
    groups = {line.split(":")[2]: line.split(":")[0] for line in (root.folder / "etc/group").read_text().splitlines()}
    status = path.stat()
    return f"{users[str(status.st_uid)]}:{groups[str(status.st_gid)]}"


def world_readable(folder):
    return [path for path in folder.rglob("*") if path.is_file() and mode(path) & 0o007]


def test_packages_install_run_upgrade_remove_and_purge(root, packages):
    assert not root.find(lambda path: "libswift" in path.name), "the clean root has no Swift"
    assert "longwire" not in root.packages and not (root.folder / "opt").exists()
    root.install(*packages["1.0.0"].values())
    inside = root.folder

    # The files that an installation leaves.
    assert root.status("longwire") == root.status("longwire-sender") == "install ok installed"
    assert root.run("dpkg", "--audit").stdout == "", "nothing is half installed"
    assert root.user("longwire")[5:] == ["/var/lib/longwire", "/usr/sbin/nologin"]
    assert root.user("longwire-sender")
    assert mode(inside / "etc/longwire/gateway.json5") == 0o640
    assert names_of(root, inside / "etc/longwire/gateway.json5") == "root:longwire"
    assert names_of(root, inside / "etc/longwire/sender.json5") == "root:longwire-sender"
    for folder, owner in (("etc/longwire/secrets", "root:longwire"), ("etc/longwire/sender", "root:longwire-sender"), ("var/lib/longwire", "longwire:longwire")):
        assert (mode(inside / folder), names_of(root, inside / folder)) == (0o750, owner)
    wanted = inside / "etc/systemd/system/multi-user.target.wants"
    assert (wanted / "longwired.service").is_symlink(), "the gateway starts with the machine"
    assert not (wanted / "longwire-sender.service").is_symlink(), "the sender has no key yet"
    # The files that the pages point to, under the names that they have in deploy/.
    for folder, count in (("prometheus", 2), ("grafana", 1), ("proxies", 3)):
        installed = {path.name: path.read_text() for path in (inside / "usr/share/longwire" / folder).iterdir()}
        assert installed == {path.name: path.read_text() for path in (HERE / "deploy" / folder).iterdir()} and len(installed) == count
    for page in (inside / "usr/share/doc/longwire/docs/use").glob("Operations*.md"):
        named = set(re.findall(r"`(/usr/share/longwire[^`]*)`", page.read_text()))
        assert len(named) >= 3 and all((inside / path.lstrip("/")).exists() for path in named), (page, named)
    refused = root.run("cat", "/etc/longwire/gateway.json5", user="nobody", check=False)
    assert refused.returncode != 0 and "Permission denied" in refused.stderr
    # Libraries are only from the packages' dependencies and their own folder.
    for program in PROGRAMS:
        missing = [line for line in root.run("sh", "-c", f"ldd $(realpath /usr/bin/{program})").stdout.splitlines() if "not found" in line]
        assert not missing, missing

    # The first start uses the installed configuration, except for its ports.
    assert root.run("longwired", "--check", "--config", "/etc/longwire/gateway.json5", user="longwire").stdout == "The configuration is valid.\n"
    (inside / "etc/longwire/secrets/handoff").write_text("a-token-of-the-tests-for-apns\n")
    shutil.chown(inside / "etc/longwire/secrets/handoff", 0, int(root.user("longwire")[3]))
    (inside / "etc/longwire/secrets/handoff").chmod(0o640)
    ports = free_ports(5)
    credential = '{name: "apns", tokenFile: "secrets/handoff", may: ["admin"]}'
    text = configure(root, ports, credentials=f"credentials: [{credential}]")
    process, manager = start(root, "longwired")
    log = (inside / "tmp/longwired.log").read_text()
    assert not [line for line in log.splitlines() if re.search(r"\b(WARNING|ERROR)\b", line) and "fewDescriptors" not in line], log
    # The service has started when it listens, and is ready moments later.
    health = ("longwire", "health", "--http", f"127.0.0.1:{ports[1]}")
    eventually(lambda: root.run(*health, user="nobody", check=False).returncode == 0, "readiness of the gateway")
    demo = json.loads((inside / "var/lib/longwire/demo.json").read_text())
    device = Device("127.0.0.1", ports[0], demo["appId"])
    device.register(demo["appSecret"])
    device.close()
    cid = device.state.cid.hex()
    push = ["longwire", "push", "--data", "/var/lib/longwire", "--cid", cid, "--payload", "kept over an upgrade"]
    assert root.run(*push, user="nobody", check=False).returncode == 64, "only root and the gateway may read the demo app's secrets"
    eventually(lambda: "successed_offline" in root.run(*push, user="longwire").stdout)
    assert not world_readable(inside / "var/lib/longwire") and not world_readable(inside / "etc/longwire")

    # The sender.
    token = inside / "etc/longwire/sender/gateway-token"
    token.write_text("a-token-of-the-tests-for-apns\n")
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(token.parent / "AuthKey.p8")], check=True, capture_output=True)
    for file in (token, token.parent / "AuthKey.p8"):
        shutil.chown(file, 0, int(root.user("longwire-sender")[3]))
        file.chmod(0o640)
    sender = inside / "etc/longwire/sender.json5"
    missing = root.run("longwire-sender", "--check", "--config", "/etc/longwire/sender.json5", user="longwire-sender", check=False)
    assert missing.returncode == 78 and "at least one credential of a vendor" in missing.stderr
    as_installed = sender.read_text()
    assert "    // {name" in as_installed
    sender.write_text(as_installed.replace("    // {name", "    {name").replace("7081", str(ports[3])).replace("7090", str(ports[4])))
    assert root.run("longwire-sender", "--check", "--config", "/etc/longwire/sender.json5", user="longwire-sender").stdout == "The configuration is valid.\n"
    assert root.run("cat", "/etc/longwire/sender/AuthKey.p8", user="longwire", check=False).returncode != 0, "the gateway cannot read Apple's key"
    stop_sender = start_second(root, "longwire-sender")
    eventually(lambda: root.run("longwire", "health", "--http", f"127.0.0.1:{ports[4]}", check=False).returncode == 0, "readiness of the sender")
    stop_sender()
    stop(process, manager)

    # The upgrade keeps the edited configuration, the data and the users.
    before = (root.user("longwire"), root.user("longwire-sender"))
    root.install(*packages["1.0.1"].values())
    assert field_inside(root, "longwire", "Version") == "1.0.1"
    assert (inside / "etc/longwire/gateway.json5").read_text() == text
    assert mode(inside / "etc/longwire/gateway.json5") == 0o640
    assert (root.user("longwire"), root.user("longwire-sender")) == before
    process, manager = start(root, "longwired")
    device.connect()
    (message,) = device.receive_and_ack(1)
    assert message.payload == b"kept over an upgrade"
    device.close()
    stop(process, manager)

    # Removed: the programs are gone, configuration and data stay.
    root.run("dpkg", "--remove", "longwire", "longwire-sender")
    assert not list(inside.glob("usr/bin/longwire*")) and not (inside / "usr/lib/longwire").exists()
    assert not (inside / "lib/systemd/system/longwired.service").exists()
    assert (inside / "etc/longwire/gateway.json5").read_text() == text
    assert (inside / "var/lib/longwire/demo.json").exists()

    # Purged: the packages' own files are gone, and the administrator's stay.
    root.run("dpkg", "--purge", "longwire", "longwire-sender")
    assert root.status("longwire") == "" or "not-installed" in root.status("longwire")
    assert not (inside / "var/lib/longwire").exists()
    assert not (inside / "etc/longwire/gateway.json5").exists() and not (inside / "etc/longwire/sender.json5").exists()
    assert (inside / "etc/longwire/sender/AuthKey.p8").exists(), "Apple gives a key once"
    left = [path.relative_to(inside) for path in root.find(lambda path: "longwire" in path.name)]
    assert [path for path in left if path.parts[0] != "tmp"] == [pathlib.Path("etc/longwire")], left


def start_second(root, name):
    """Starts a second service beside a first; its manager's socket replaces the first one's."""
    (root.folder / "run/systemd/notify").rename(root.folder / "run/systemd/first")
    process, manager = start(root, name)

    def end():
        stop(process, manager)
        (root.folder / "run/systemd/first").rename(root.folder / "run/systemd/notify")

    return end


def field_inside(root, package, name):
    return root.run("dpkg-query", "-W", "-f", f"${{{name}}}", package).stdout


def test_equal_programs_give_equal_packages(packages, tmp_path):
    again = build(tmp_path, "--version", "1.0.0", "--package", "longwire-sender")["longwire-sender"]
    assert again.read_bytes() == packages["1.0.0"]["longwire-sender"].read_bytes()


def test_lintian_finds_no_error(packages, tmp_path):
    """Checks everything except the programs, which would take most of the time; `make deb` checks them, too."""
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed")
    for name, package in packages["1.0.0"].items():
        inside = tmp_path / name
        subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(inside)], check=True)
        for folder in ("usr/bin", f"usr/lib/{name}"):
            shutil.rmtree(inside / folder, ignore_errors=True)
        sums = inside / "DEBIAN/md5sums"
        sums.write_text("".join(line for line in sums.read_text().splitlines(True) if (inside / line[34:].strip()).exists()))
        subprocess.run(["dpkg-deb", "-Zxz", "-z0", "--build", str(inside), str(tmp_path)], check=True, capture_output=True)
    words = ["lintian", "--allow-root", *map(str, tmp_path.glob("*.deb"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not re.search("^E:", done.stdout, re.M), done.stdout + done.stderr


# Units


@pytest.mark.parametrize("name", ["longwired", "longwire-sender"])
def test_units_are_sound_and_hardened(name, tmp_path):
    # systemd-analyze also looks for the program.
    unit = tmp_path / f"{name}.service"
    unit.write_text((UNITS / unit.name).read_text().replace(f"/usr/bin/{name} ", f"{binary(name)} "))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    assert verified.returncode == 0 and f"{name}.service" not in verified.stderr, verified.stderr
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", str(unit)]
    judged = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert judged.returncode == 0, judged.stdout[-600:] + judged.stderr


def test_settings_of_the_kernel_are_ones_that_it_has():
    for line in (UNITS / "60-longwire.conf").read_text().splitlines():
        if line and not line.startswith(("#", "-")):
            name, value = re.fullmatch(r"([a-z0-9_.-]+) = (.+)", line).groups()
            assert re.fullmatch(r"\d+( \d+)*", value)
            path = pathlib.Path("/proc/sys", *name.split("."))
            assert path.exists() or name.startswith("net.core"), f"{name}: no such setting"


# Manual pages and completions are generated from --help. These tests define the relation.


@functools.cache
def help_text(program, words=()):
    done = subprocess.run([binary(program), *words, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command_lines():
    """Returns every command of `longwire` in its overview."""
    listed = help_text("longwire").split("Commands:\n")[1].split("\n\n")[0]
    return [tuple(re.match(r"  (\S+(?: \S+)*?)  +\S", line)[1].split()) for line in listed.splitlines() if re.match(r"  \S", line)]


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual")
    words = [str(HERE / "deploy/manual.py"), "--binaries", os.path.dirname(binary("longwired")), "--output", str(folder)]
    subprocess.run(words, check=True, timeout=120)
    return folder


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_manual_page_says_what_help_says(program, manual):
    (page,) = (manual / "man").glob(f"{program}.[18]")
    done = subprocess.run(
        ["man", "--warnings", "--local-file", str(page)], capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "MANWIDTH": "2000", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "PAGER": "cat"})  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    shown = re.sub(r"\s+", " ", done.stdout)
    texts = [help_text(program)]
    if program == "longwire":
        texts += [help_text(program, words) for words in command_lines()]
        for words in command_lines():
            assert "longwire " + " ".join(words) in shown
    for text in texts:
        missing = options_in(text) - options_in(shown)
        assert not missing, missing
        # All words, not only names: each word of the help is in the page.
        words = set(re.findall(r"[A-Za-z]{4,}", text))
        assert not (lost := words - set(re.findall(r"[A-Za-z]{4,}", shown)) - {"Usage", "Commands", "Arguments"}), lost


def bash_offers(manual, program, *words):
    script = f"""
        source "{manual}/bash/{program}"
        COMP_WORDS=({program} {" ".join(f'"{word}"' for word in words)}) COMP_CWORD={len(words)}
        $(complete -p {program} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def fish_offers(manual, program, *words):
    line = " ".join([program, *words])
    script = f"source {manual}/fish/{program}.fish; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return {row.split("\t")[0] for row in done.stdout.splitlines()}


@pytest.mark.parametrize("offers", [bash_offers, fish_offers])
def test_completions_offer_what_help_names(manual, offers):
    if offers is fish_offers and not shutil.which("fish"):
        pytest.skip("fish is not installed")
    lines = command_lines()
    assert offers(manual, "longwire", "") >= {words[0] for words in lines}
    assert offers(manual, "longwire", "handoff", "") >= {"lease", "settle"}
    assert not offers(manual, "longwire", "trace", "") & {"push", "lease"}
    for words in lines if offers is bash_offers else [("push",), ("handoff", "lease")]:
        named = {option for option in options_in(help_text("longwire", words)) if re.search(rf"^  {option}\b", help_text("longwire", words), re.M)}
        assert offers(manual, "longwire", *words, "--") >= named | {"--help"}, words
    assert offers(manual, "longwired", "--") >= {"--config", "--check", "--accept-clock"}
    assert offers(manual, "longwire-sender", "") >= {"doctor", "channel", "broadcast", "fake"}
    assert offers(manual, "longwire-sender", "channel", "") >= {"create", "list", "show", "delete"}
    assert offers(manual, "longwire-sender", "doctor", "--") >= {"--config", "--topic", "--token"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_completions_for_zsh_are_sound(manual, program):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    file = manual / f"zsh/_{program}"
    done = subprocess.run(["zsh", "-f", "-n", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text = file.read_text()
    for words in command_lines() if program == "longwire" else [()]:
        assert options_in(help_text(program, words)) & options_in(text)


# The system calls that a unit allows, and those of its program


def expand(names):
    """Expands groups and names of system calls as systemd does."""
    done = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, timeout=60, check=True)
    groups, group = {}, None
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            group = groups.setdefault(line.strip(), [])
        elif group is not None and line.startswith("    ") and not line.strip().startswith("#"):
            group.append(line.strip())
    found = set()
    for name in names:
        found |= expand(groups[name]) if name in groups else {name}
    return found


def allowed_by(unit):
    """Returns the calls that remain after the unit's SystemCallFilter= lines, applied in order."""
    allowed = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", (UNITS / unit).read_text(), re.M):
        names = expand(line.lstrip("~").split())
        allowed = allowed - names if line.startswith("~") else allowed | names
    # systemd itself adds these to every list.
    return allowed | expand(["@default"])


@pytest.mark.parametrize("program", ["longwired", "longwire-sender"])
def test_the_unit_allows_every_system_call_that_the_program_makes(program, tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    traced = tmp_path / "calls"
    words = ["strace", "-f", "-qq", "-o", str(traced), binary(program), "--config"]
    gateway = Gateway(limits={"drainSeconds": 0, "journalBytes": 16_777_216, "spillAfterSeconds": 1})
    gateway.config.write_text(json.dumps(gateway.sections))
    file, port = (gateway.config, gateway.admin) if program == "longwired" else sender_files(tmp_path, gateway.admin)
    process = subprocess.Popen([*words, str(file)], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: is_open(port), "its listener")
        if program == "longwired":
            gateway.process = process
            device = Device("127.0.0.1", gateway.device, gateway.app["appId"])
            device.register(gateway.app["appSecret"])
            device.close()
            eventually(lambda: gateway.push(device.state.cid.hex(), "x" * 1_000, alert="A"))
            # Waits until the program has moved the journal to RocksDB.
            eventually(lambda: re.search(r"^longwire_store_spilled_rows_total [1-9]", gateway.metrics(), re.M))
        child = int(traced.read_text().split(maxsplit=1)[0])
        os.kill(child, signal.SIGHUP)
        os.kill(child, signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            with contextlib.suppress(Exception):
                os.kill(int(traced.read_text().split(maxsplit=1)[0]), signal.SIGKILL)
            process.kill()
            process.wait()
        gateway.process = None
        gateway.__exit__()
    text = traced.read_text()
    made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", text, re.M))
    assert {"listen", "epoll_wait"} <= made
    assert not (refused := made - allowed_by(f"{program}.service")), refused
    assert not re.findall(r"(?:mmap|mprotect)\(.*PROT_WRITE\|PROT_EXEC.*", text), "MemoryDenyWriteExecute would refuse this"
    families = set(re.findall(r"^\d+ +socket\((AF_[A-Z0-9]+)", text, re.M))
    assert families <= set(re.search("^RestrictAddressFamilies=(.*)$", (UNITS / f"{program}.service").read_text(), re.M)[1].split())
