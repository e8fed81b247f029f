"""Containers without a container runtime: namespaces and a root folder each, for the files in deploy/docker, compose and kubernetes.

    with ContainerHost() as host:                     a network namespace for the calling thread, with a bridge at 172.17.0.1
        image = Image.from_dockerfile(folder, path, packages)
        container = host.run("longwire", image, volumes={"/var/lib/longwire": volume}, publish=["127.0.0.1:7081:7081"])
        container.execute("longwire", "health")

A container has what the programs can observe of a real one: their own root folder, process 1, host name and addresses, the user,
the capabilities, volumes and a read-only root. HAProxy publishes ports as docker-proxy does, so a gateway sees the bridge's
address as the peer. The last stage of the Dockerfile is executed line by line on `CleanRoot`. It needs root.
"""

import contextlib
import ctypes
import glob
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "parties"))
import network  # noqa: E402
from clean_root import CleanRoot  # noqa: E402
from gateway import eventually  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)
# apt-get would install the first; this machine has the second, which has the same program.
STAND_INS = {"systemd-standalone-sysusers": "systemd"}


def _checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {words}: {done.stderr}"


# Images


def is_allowed():
    """Returns whether this machine allows the namespaces of a container: root, and the kernel's permission."""
    words = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"]
    return os.geteuid() == 0 and network.is_allowed() and subprocess.run(words, capture_output=True, check=False).returncode == 0


class Image:
    """A root folder that containers share read-only, and what an image says of its programs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.entrypoint, self.command, self.environment, self.volumes = [], [], {}, []
        self.user, self.workdir, self.health = "0:0", "/", None

    @classmethod
    def from_dockerfile(cls, folder, dockerfile, packages):
        """Executes the last stage of a Dockerfile; `packages` are the .deb files of the stage before it."""
        image, stage = cls(folder), _instructions(dockerfile.read_text())
        (names,) = {tuple(re.findall(r"apt-get install ((?:[^&\\]|\\\n)*)", words)) for kind, words in stage if "apt-get" in words}
        wanted = [STAND_INS.get(word, word) for word in names[0].split() if word[0] not in "-/"] + base_packages()
        depends = [subprocess.run(["dpkg-deb", "-f", str(one), "Depends"], check=True, capture_output=True, text=True).stdout.strip() for one in packages]
        root = CleanRoot(folder, ", ".join(wanted + depends))
        shim = image.folder / "usr/bin/apt-get"
        shim.write_text(_APT.replace("@KNOWN@", " ".join([*root.packages, *STAND_INS])))
        shim.chmod(0o755)
        for kind, words in stage:
            image._follow(kind, words, root, packages)
        shim.unlink()
        # The scripts of ca-certificates made these files when it was installed on this machine.
        shutil.copytree("/etc/ssl/certs", image.folder / "etc/ssl/certs", symlinks=True, dirs_exist_ok=True)
        return image

    def _follow(self, kind, words, root, packages):
        if kind == "RUN":
            root.run("sh", "-e", "-c", words)
        elif kind == "COPY":
            options = [word for word in words.split() if word.startswith("--")]
            *sources, target = [word for word in words.split() if not word.startswith("--")]
            if "--from=build" in options:
                assert sources == ["/packages/*.deb"], sources
                files = packages
            else:
                files = [ROOT / source for source in sources]
            place = self.folder / target.lstrip("/")
            (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            for file in files:
                copied = pathlib.Path(shutil.copy(file, place))
                mode = next((int(word.split("=")[1], 8) for word in options if word.startswith("--chmod=")), None)
                copied.chmod(mode or copied.stat().st_mode)
        elif kind == "ENV":
            self.environment |= dict(word.split("=", 1) for word in shlex.split(words))
        elif kind in ("ENTRYPOINT", "CMD"):
            setattr(self, {"ENTRYPOINT": "entrypoint", "CMD": "command"}[kind], json.loads(words))
        elif kind == "USER":
            self.user = words
        elif kind == "VOLUME":
            self.volumes = words.split()
        elif kind == "HEALTHCHECK":
            self.health = json.loads(words.split(" CMD ")[1])
        else:
            assert kind in ("FROM", "EXPOSE", "STOPSIGNAL"), f"the rig does not know {kind}"

    @classmethod
    def of_this_machine(cls, folder, user, entrypoint, command=(), workdir="/", folders=()):
        """An image with this machine's programs, for one that is made elsewhere; `folders` are its user's."""
        image = cls(folder)
        image.user, image.entrypoint, image.command, image.workdir = user, list(entrypoint), list(command), workdir
        for name in ("usr", "etc/ssl", "proc", "dev", "tmp", "run", "var/log", "var/lib", *(one.lstrip("/") for one in (workdir, *folders))):
            (image.folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (image.folder / name).symlink_to(f"usr/{name}")
        for name in ("passwd", "group", "nsswitch.conf", "ssl/openssl.cnf", "ld.so.cache"):
            shutil.copy(f"/etc/{name}", image.folder / "etc" / name)
        shutil.copytree("/etc/ssl/certs", image.folder / "etc/ssl/certs", symlinks=True)
        for name in folders:
            os.chown(image.folder / name.lstrip("/"), *map(int, user.split(":")))
        image.binds = ["/usr"]
        return image

    binds = ()


def base_packages():
    """What debian:bookworm-slim has beside the essential packages: those of the priority `required`, and apt."""
    stanzas = pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n")
    required = [re.search("^Package: (.*)$", one, re.M)[1] for one in stanzas if re.search("^Priority: required$", one, re.M) and "\nStatus: install ok installed" in one]
    return ["apt", *required]


def _instructions(text):
    """The instructions of the last stage, as pairs; continued lines are joined."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]
    last = max(index for index, (kind, _) in enumerate(found) if kind == "FROM")
    return found[last:]


_APT = """#!/bin/sh
# Stands for apt-get, which would fetch: the named packages are in this root already, files are installed.
set -e
case "$1" in update) exit 0 ;; install) shift ;; *) echo "apt-get $1?" >&2; exit 1 ;; esac
for word; do
    case "$word" in
    --*) ;;
    /*) files="$files $word" ;;
    *) case " @KNOWN@ " in *" $word "*) ;; *) echo "apt-get: $word was not chosen" >&2; exit 1 ;; esac ;;
    esac
done
exec dpkg --install $files
"""


# Hosts and networks


class ContainerHost:
    """A machine with containers. The calling thread is on it until the end of the block, with all programs that it starts."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="longwire-containers-")
        self.folder = pathlib.Path(self._folder.name)
        self.networks, self.containers, self.processes, self._counts = {}, [], [], {}

    def __enter__(self):
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _checked(_libc.unshare(_CLONE_NEWNET))
        ip("link", "set", "lo", "up")
        # The machine's address in its own network, from which phones would come.
        ip("addr", "add", "192.168.1.20/32", "dev", "lo")
        self.network("bridge", "172.17.0")
        return self

    def __exit__(self, *_):
        for container in self.containers:
            container.kill()
        for process in self.processes:
            process.kill()
            process.wait()
        _checked(_libc.setns(self._before, _CLONE_NEWNET))
        os.close(self._before)
        self._folder.cleanup()

    def network(self, name, subnet):
        """A bridge; the host has the address 1 in it."""
        self.networks[name], self._counts[name] = subnet, 1
        link = f"br{len(self.networks)}"
        ip("link", "add", link, "type", "bridge")
        ip("addr", "add", f"{subnet}.1/24", "dev", link)
        ip("link", "set", link, "up")

    def address(self, network):
        self._counts[network] += 1
        return f"{self.networks[network]}.{self._counts[network]}"

    def volume(self, name):
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, words, **options):
        """A program of the host itself, until the end of the block."""
        log = open(self.folder / f"{pathlib.Path(words[0]).name}-{len(self.processes)}.log", "ab")
        process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
        log.close()
        self.processes.append(process)
        return process

    def publish(self, container, ports):
        """What docker-proxy does: a listener of the host for each of `[HOST:]PORT:PORT`; the container sees the bridge's address."""
        text = "global\n  maxconn 500\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
        for number, one in enumerate(ports):
            *address, near, far = str(one).split(":")
            text += f"listen port{number}\n  bind {address[0] if address else '0.0.0.0'}:{near}\n"
            text += f"  server one {container.host}:{far}\n"
        file = self.folder / f"published-{container.name}-{len(self.processes)}.cfg"
        file.write_text(text)
        if ports:
            container.proxies.append(self.start(["/usr/sbin/haproxy", "-db", "-f", file]))

    def run(self, name, image, words=None, publish=(), addresses=None, **options):
        """Starts a container as `docker run` would; `addresses`: those it has, by network."""
        addresses = {"bridge": self.address("bridge")} if addresses is None else addresses
        container = Container(self, name, image, addresses, image.command if words is None else words, **options)
        self.containers.append(container)
        container.start()
        self.publish(container, publish)
        return container


class Container:
    """Process 1 of an image, and what `docker exec` and `docker stop` do with it."""

    def __init__(self, host, name, image, addresses, words, entrypoint=None, user=None, environment=None, volumes=None, hostname=None,
                 hosts=None, read_only=False, drops_capabilities=False, no_new_privileges=False, files=None, shared=None):
        self.machine, self.name, self.image, self.addresses = host, name, image, addresses
        self.words = [*(image.entrypoint if entrypoint is None else entrypoint), *words]
        self.user, self.environment = user or image.user, {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SWIFT_BACKTRACE": "enable=no",
            "HOSTNAME": hostname or name, **image.environment, **(environment or {})}
        self.volumes, self.hosts, self.hostname = dict(volumes or {}), hosts or {}, hostname or name
        self.read_only, self.drops, self.files, self.no_new_privileges = read_only, drops_capabilities, files, no_new_privileges
        self.process, self.shared, self.proxies = None, shared, []
        self.log_file = host.folder / f"{name}.log"

    @property
    def host(self):
        return next(iter(self.addresses.values()), "127.0.0.1")

    def log(self):
        return self.log_file.read_text(errors="replace")

    def _user_words(self, other=None):
        user, _, group = (other or self.user).partition(":")
        user = {"root": "0"}.get(user, user)
        words = ["setpriv", f"--reuid={user}", f"--regid={group or user}", "--clear-groups"]
        words += ["--bounding-set=-all", "--inh-caps=-all"] if self.drops else []
        return words + (["--no-new-privs"] if self.no_new_privileges else [])

    def _script(self):
        """What prepares the root in the container's own mount namespace; it waits for its network first."""
        root = self.machine.folder / "roots" / self.name
        root.mkdir(parents=True, exist_ok=True)
        quoted, image = shlex.quote(str(root)), shlex.quote(str(self.image.folder))
        # The layer above the image is in memory, as everything that a container writes goes with it.
        lines = ["read -r _", "mount --make-rprivate /", f"mount -t tmpfs tmpfs {quoted}",
                 f"mkdir {quoted}/upper {quoted}/work {quoted}/root",
                 f"mount -t overlay overlay -o lowerdir={image},upperdir={quoted}/upper,workdir={quoted}/work {quoted}/root",
                 f"cd {quoted}/root", "mount -t proc proc proc", "mount --rbind /dev dev"]
        lines += [f"mount --rbind {path} .{path}" for path in self.image.binds]
        hosts = self.machine.folder / f"{self.name}.hosts"
        hosts.write_text("".join(f"{address}\t{name}\n" for name, address in
                                 [("localhost", "127.0.0.1"), ("localhost", "::1"), (self.hostname, self.host), *self.hosts.items()]))
        volumes = {**self.volumes, "/etc/hosts": (hosts, True)}
        for target, source in volumes.items():
            source, is_read_only = source if isinstance(source, tuple) else (source, False)
            near, far = shlex.quote(str(source)), "." + shlex.quote(target)
            if pathlib.Path(source).is_dir():
                lines.append(f"mkdir -p {far}")
                if pathlib.Path(source).is_relative_to(self.machine.folder / "volumes"):
                    # A volume begins as a copy of the image's folder.
                    lines.append(f"if [ -z \"$(ls -A {near})\" ]; then cp -aT {far} {near}; fi")
            else:
                lines += [f"mkdir -p $(dirname {far})", f"[ -e {far} ] || touch {far}"]
            lines.append(f"mount --bind {near} {far}")
            lines += [f"mount -o remount,bind,ro {far}"] if is_read_only else []
        # A sandbox may forbid to raise the limit; the gateway then says fewDescriptors.
        lines += [f"ulimit -n {min(self.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])}"] if self.files else []
        lines += ["mount -o remount,ro ."] if self.read_only else []
        words = [*self._user_words(), "env", "-i", *(f"{name}={value}" for name, value in self.environment.items()), *self.words]
        inside = f"cd {shlex.quote(self.image.workdir)} && exec {shlex.join(words)}"
        return "set -eu\n" + "\n".join(lines) + f"\nhostname {self.hostname}\nexec chroot . sh -c {shlex.quote(inside)} </dev/null\n"

    def start(self):
        network = [] if self.shared else ["--net"]
        words = ["unshare", *network, "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", self._script()]
        if self.shared:
            words = ["nsenter", "-t", str(self.shared.pid), "-n", *words]
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        self.pid = eventually(self._child, f"process 1 of {self.name}")
        if not self.shared:
            self._connect()
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def _child(self):
        assert self.process.poll() is None, self.log()
        for process in self._descendants(self.process.pid):
            fields = pathlib.Path(f"/proc/{process}/status").read_text()
            if re.search(r"^NSpid:\t\d+\t1$", fields, re.M) or re.search(r"^NSpid:.*\t1$", fields, re.M):
                return process
        return None

    @staticmethod
    def _descendants(process):
        with contextlib.suppress(OSError):
            children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
            return [int(child) for child in children]
        return []

    def _connect(self):
        enter = ["nsenter", "-t", str(self.pid), "-n", "ip"]
        subprocess.run([*enter, "link", "set", "lo", "up"], check=True)
        for number, (network, address) in enumerate(self.addresses.items()):
            bridge = f"br{list(self.machine.networks).index(network) + 1}"
            near = f"v{self.pid}n{number}"
            ip("link", "add", near, "type", "veth", "peer", "name", f"eth{number}", "netns", self.pid)
            ip("link", "set", near, "master", bridge, "up")
            subprocess.run([*enter, "addr", "add", f"{address}/24", "dev", f"eth{number}"], check=True)
            subprocess.run([*enter, "link", "set", f"eth{number}", "up"], check=True)
            if number == 0:
                subprocess.run([*enter, "route", "add", "default", "via", f"{self.machine.networks[network]}.1"], check=True)

    def execution(self, *words, user=None):
        """The words of `docker exec`, for the host."""
        inside = [*self._user_words(user), "env", "-i", *(f"{name}={value}" for name, value in self.environment.items()), *words]
        return ["nsenter", "-t", str(self.pid), "--net", "--mount", "--uts", "--ipc", "--pid", "--root", "--wd", *inside]

    def execute(self, *words, user=None, check=True, timeout=60):
        """Runs words inside to their end."""
        done = subprocess.run(self.execution(*words, user=user), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        assert not check or done.returncode == 0, f"{self.name}: {words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def is_healthy(self, words=None):
        assert self.process.poll() is None, f"{self.name} has ended:\n{self.log()[-3000:]}"
        return self.execute(*(words or self.image.health), check=False).returncode == 0

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self, timeout=60):
        """`docker stop`: SIGTERM to process 1; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def wait(self, timeout=60):
        return self.process.wait(timeout)

    def remove(self):
        """`docker rm --force`: the ports are free for another container."""
        self.kill()
        for proxy in self.proxies:
            proxy.kill()
            proxy.wait()

    def kill(self):
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            # Process 1 takes all others of its namespace along.
            self.process.wait(30)


def built_packages(folder, binaries):
    """The Debian packages of programs in `binaries`, as the image's first stage makes them."""
    command = [str(ROOT / "deploy/debian/build.sh"), "--binaries", str(binaries), "--fast", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [pathlib.Path(path) for path in sorted(glob.glob(f"{folder}/*.deb"))]
