"""Runs the services of a compose file as containers of containers.py; keys that it does not know fail the run.

    with ComposeProject(host, file, images, profiles=["fake"], missing={"grafana"}) as project:
        project["gateway"].execute("longwire", "health")

`images` has an Image for each image name without its tag. `missing` are the services whose programs this machine lacks: the rig
checks that there are no others.
"""

import re

import yaml
from containers import eventually

KNOWN = {
    "build", "image", "user", "command", "volumes", "network_mode", "networks", "depends_on", "ports", "environment", "restart",
    "read_only", "cap_drop", "security_opt", "ulimits", "stop_grace_period", "healthcheck", "profiles"}


class ComposeProject:
    def __init__(self, host, file, images, profiles=(), missing=(), environment=None):
        self.host, self.folder, self.images, self.missing = host, file.parent, images, set(missing)
        variables = environment or {}
        text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1]) or found[2], file.read_text())
        project = yaml.safe_load(text)
        every = project["services"]
        for name, service in every.items():
            assert set(service) <= KNOWN, f"{name}: the rig does not know {set(service) - KNOWN}"
        self.services = {name: one for name, one in every.items() if set(one.get("profiles", profiles)) <= set(profiles) or not one.get("profiles")}
        self.networks = ["default", *project.get("networks", {})]
        self.containers = {}

    def __getitem__(self, name):
        return self.containers[name]

    def up(self):
        for number, network in enumerate(self.networks):
            self.host.network(network, f"172.{18 + number}.0")
        self.addresses = {name: self._addresses(one) for name, one in self.services.items()}
        waiting = dict(self.services)
        while waiting:
            name = next(one for one, service in waiting.items() if not set(self._needs(service)) & set(waiting))
            self._start(name, waiting.pop(name))
        return self

    @staticmethod
    def _needs(service):
        needs = service.get("depends_on", {})
        return needs if isinstance(needs, dict) else {name: {"condition": "service_started"} for name in needs}

    def _addresses(self, service):
        if service.get("network_mode") == "none":
            return {}
        return {network: self.host.address(network) for network in service.get("networks", ["default"])}

    def _start(self, name, service):
        image = service["image"].split(":")[0]
        if image not in self.images:
            assert name in self.missing, f"there is no program for {name} ({image})"
            return
        for other, need in self._needs(service).items():
            self._await(other, need["condition"])
        volumes = {}
        for text in service.get("volumes", []):
            source, target, *mode = text.split(":")
            path = (self.folder / source).resolve() if source.startswith(".") else self.host.volume(source)
            assert path.exists(), f"{name} mounts {source}"
            volumes[target] = (path, mode == ["ro"])
        # A service finds by name what shares a network with it.
        mine = self.addresses[name]
        hosts = {other: theirs[network] for other, theirs in self.addresses.items() for network in theirs if network in mine and other != name}
        command = service.get("command", self.images[image].command)
        self.containers[name] = self.host.run(
            name, self.images[image], command, service.get("ports", []), mine, user=service.get("user"),
            environment=service.get("environment"), volumes=volumes, hosts=hosts, read_only=service.get("read_only", False),
            drops_capabilities=service.get("cap_drop") == ["ALL"], no_new_privileges="no-new-privileges:true" in service.get("security_opt", []),
            files=service.get("ulimits", {}).get("nofile"))

    def _await(self, name, condition):
        container = self.containers[name]
        if condition == "service_completed_successfully":
            assert container.wait() == 0, container.log()
        elif condition == "service_healthy":
            eventually(lambda: self.is_healthy(name), f"health of {name}")
        else:
            assert condition == "service_started", condition

    def is_healthy(self, name):
        check = self.services[name].get("healthcheck", {})
        if not check:
            return self.containers[name].is_healthy()
        kind, *words = check["test"]
        return self.containers[name].is_healthy(words if kind == "CMD" else ["sh", "-c", *words])
