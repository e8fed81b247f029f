"""A root folder with only Debian packages: the essential ones, and the dependencies of the packages to install.

Their files and their entries in dpkg's database are copied from this machine, where they are installed, so nothing is downloaded.
A package of ours with a missing dependency therefore fails here.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess

DATABASE = pathlib.Path("/var/lib/dpkg")
# Documents only. Leaving them out halves the copy.
LEFT_OUT = re.compile(r"^/usr/share/(doc|man|locale|info|i18n|zoneinfo|perl5/pod)/")


def _stanzas():
    found = {}
    for text in (DATABASE / "status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.M))
        if fields.get("Status") == "install ok installed":
            found[fields["Package"]] = (fields, text)
    return found


def _names(depends):
    """Returns one row of alternatives for each dependency."""
    rows = [row for row in (depends or "").split(",") if row.strip()]
    return [[re.match(r"\s*([a-z0-9.+-]+)", one)[1] for one in row.split("|")] for row in rows]


def closure(depends):
    """Returns the installed packages that satisfy `depends`, the essential ones, and all their dependencies."""
    stanzas, chosen = _stanzas(), set()
    provided = {}
    for name, (fields, _) in stanzas.items():
        for (one,) in _names(fields.get("Provides")):
            provided.setdefault(one, name)
    waiting = _names(depends) + [[name] for name, (fields, _) in stanzas.items() if fields.get("Essential") == "yes"]
    while waiting:
        alternatives = waiting.pop()
        name = next((one for one in alternatives if one in stanzas), None)
        name = name or next((provided[one] for one in alternatives if one in provided), None)
        if name is None:
            raise AssertionError(f"none of {alternatives} is installed on this machine")
        if name not in chosen:
            chosen.add(name)
            fields = stanzas[name][0]
            waiting += _names(fields.get("Pre-Depends")) + _names(fields.get("Depends"))
    return {name: stanzas[name] for name in chosen}


class CleanRoot:
    def __init__(self, folder, depends):
        self.folder = pathlib.Path(folder)
        packages = closure(depends)
        self.packages = sorted(packages)
        for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "dev", "tmp", "run", "root", "etc"):
            (self.folder / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.folder / name).symlink_to(f"usr/{name}")
        (self.folder / "tmp").chmod(0o1777)
        self._copy_files(packages)
        self._copy_database(packages)
        # The effects of the packages' own installation scripts.
        for name in ("passwd", "group"):
            shutil.copy(self.folder / f"usr/share/base-passwd/{name}.master", self.folder / f"etc/{name}")
        subprocess.run(["ldconfig", "-r", str(self.folder)], check=True)

    def _copy_files(self, packages):
        paths = set()
        for name, (fields, _) in packages.items():
            paths |= set(self._list_of(name, fields).read_text().splitlines())
        kept = [path for path in sorted(paths) if not LEFT_OUT.match(path + "/") and os.path.lexists(path)]
        # Parent folders that are links already exist.
        kept = [path for path in kept if path not in ("/.", "/bin", "/sbin", "/lib", "/lib64", "/proc", "/dev", "/run")]
        reading = subprocess.Popen(
            ["tar", "-c", "-C", "/", "--no-recursion", "--null", "-T", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        writing = subprocess.Popen(
            ["tar", "-x", "-C", str(self.folder), "--keep-directory-symlink"], stdin=reading.stdout)  # fmt: skip
        reading.stdout.close()
        reading.stdin.write("\0".join(path.lstrip("/") for path in kept).encode())
        reading.stdin.close()
        assert (reading.wait(), writing.wait()) == (0, 0)

    @staticmethod
    def _list_of(name, fields):
        plain = DATABASE / f"info/{name}.list"
        return plain if plain.exists() else DATABASE / f"info/{name}:{fields['Architecture']}.list"

    def _copy_database(self, packages):
        target = self.folder / "var/lib/dpkg"
        for name in ("info", "updates", "triggers", "alternatives"):
            (target / name).mkdir(parents=True, exist_ok=True)
        for name, (fields, _) in packages.items():
            stem = self._list_of(name, fields).name[: -len(".list")]
            for kind in ("list", "md5sums", "conffiles", "shlibs", "symbols"):
                source = DATABASE / f"info/{stem}.{kind}"
                if source.exists():
                    shutil.copy(source, target / "info")
        shutil.copy(DATABASE / "info/format", target / "info/format")
        (target / "status").write_text("\n\n".join(text for _, text in packages.values()) + "\n")

    def command(self, words, user=None):
        """Returns words that run others inside: their root is this folder, with their own /proc and /dev."""
        folder = str(self.folder)
        inside = f'mount -t proc proc "{folder}/proc" && mount --rbind /dev "{folder}/dev" && exec chroot "$@"'
        who = [f"--userspec={user}:"] if user else []
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh", *who, folder, *words]

    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/tmp"}

    def run(self, *words, user=None, check=True, **options):
        """Runs words inside to their end; returns their output and exit code."""
        done = subprocess.run(
            self.command(words, user), capture_output=True, text=True, env=self.environment, timeout=120, **options)  # fmt: skip
        assert not check or done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def start(self, words, user, environment, log, umask):
        """Starts a service inside; returns its own process."""
        # In a new session, as the service manager would start it.
        return subprocess.Popen(
            self.command(words, user), env={**self.environment, **environment}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True, umask=umask)  # fmt: skip

    def install(self, *packages):
        inside = []
        for package in packages:
            shutil.copy(package, self.folder / "tmp")
            inside.append(f"/tmp/{pathlib.Path(package).name}")
        done = self.run("dpkg", "--install", *inside)
        for name in inside:
            (self.folder / name.lstrip("/")).unlink()
        return done

    def status(self, package):
        """Returns dpkg's status of a package: `install ok installed`."""
        return self.run("dpkg-query", "-W", "-f", "${Status}", package, check=False).stdout

    def user(self, name):
        """Returns the fields of a user in /etc/passwd, or None."""
        lines = (self.folder / "etc/passwd").read_text().splitlines()
        return next((line.split(":") for line in lines if line.startswith(name + ":")), None)

    def find(self, test):
        """Returns paths inside for which `test` holds, below the folders that packages fill."""
        return [path for path in self.folder.rglob("*") if test(path)]

    def remove(self, processes=()):
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder)
