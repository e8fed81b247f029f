"""Runs the pods of Kubernetes manifests as containers of containers.py, on the secrets that a README makes.

    cluster = Kubernetes(host, image, kustomize.build(folder), secrets, names)
    pod = cluster.start_pod("StatefulSet", "longwire", 0)
    cluster.serve()                                       Services, each with an address, for the pods that are ready

The rig plays kubelet, kube-proxy and DNS. A field of a pod or a container that it does not know is an error.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request

from containers import Container, eventually, ip

POD = {
    "automountServiceAccountToken", "terminationGracePeriodSeconds", "securityContext", "topologySpreadConstraints", "initContainers",
    "containers", "volumes"}
CONTAINER = {
    "name", "image", "command", "env", "ports", "resources", "securityContext", "volumeMounts", "livenessProbe", "startupProbe",
    "readinessProbe"}
RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
# Takes the place of kubectl in the README's commands: it writes secrets into folders.
_KUBECTL = """#!{python}
import pathlib, shutil, sys
root, words = pathlib.Path("{folder}"), sys.argv[1:]
if words == ["create", "namespace", "longwire"]:
    sys.exit(0)
assert words[:4] == ["-n", "longwire", "create", "secret"], words
kind, name, *options = words[4:]
place = root / name
place.mkdir()
for option in options:
    key, _, value = option.partition("=")
    if key == "--from-literal":
        file, _, text = value.partition("=")
        (place / file).write_text(text)
    elif key == "--from-file":
        shutil.copy(value, place / pathlib.Path(value).name)
    elif kind == "tls" and key in ("--cert", "--key"):
        shutil.copy(value, place / ("tls.crt" if key == "--cert" else "tls.key"))
    else:
        sys.exit(f"kubectl: {{option}}")
"""


def make_secrets(commands, folder, environment):
    """Runs a README's commands in `folder`, which has the files that they name; the secrets by name."""
    made, tools = folder / "secrets", folder / "tools"
    made.mkdir()
    tools.mkdir()
    (tools / "kubectl").write_text(_KUBECTL.format(python=sys.executable, folder=made))
    (tools / "kubectl").chmod(0o755)
    done = subprocess.run(["bash", "-eu", "-c", commands], cwd=folder, capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment, "PATH": f"{tools}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    return {place.name: {file.name: file.read_bytes() for file in place.iterdir()} for place in made.iterdir()}


class Pod:
    def __init__(self, name, labels, address, container, ports, specification):
        self.name, self.labels, self.address, self.container, self.ports = name, labels, address, container, ports
        self.specification = specification

    def probe(self, kind):
        """Whether a probe of the manifest succeeds now."""
        wanted = self.specification[kind]["httpGet"]
        try:
            address = f"http://{self.address}:{self.ports[wanted['port']]}{wanted['path']}"
            with urllib.request.urlopen(address, timeout=self.specification[kind].get("timeoutSeconds", 1)) as answer:
                return answer.status == 200
        except OSError:
            return False


class Kubernetes:
    def __init__(self, host, image, documents, secrets, names):
        self.host, self.image, self.secrets = host, image, secrets
        self.documents = {(one["kind"], one["metadata"]["name"]): one for one in documents}
        self.services = [one for (kind, _), one in self.documents.items() if kind == "Service"]
        # Services have addresses before their pods.
        self.addresses = {one["metadata"]["name"]: f"10.96.0.{number + 10}" for number, one in enumerate(self.services)}
        for address in self.addresses.values():
            ip("addr", "add", f"{address}/32", "dev", "lo")
        self.names = {**self.addresses, **names}
        self.pods = []

    def start_pod(self, kind, name, number, files=None):
        """The pod of a StatefulSet or a Deployment; `files` lie over the image's."""
        template = self.documents[kind, name]["spec"]["template"]
        specification, pod_name = template["spec"], f"{name}-{number}"
        assert set(specification) <= POD, set(specification) - POD
        address = self.host.address("bridge")
        # It keeps the network namespace, as the pause container does.
        pause = self.host.run(f"{pod_name}.pause", self.image, ["sleep", "infinity"], addresses={"bridge": address}, entrypoint=[])
        volumes = {one["name"]: self._volume(pod_name, one, specification["securityContext"]) for one in specification["volumes"]}
        for one in specification.get("initContainers", []):
            container = self._container(pod_name, one, specification, volumes, address, pause, files)
            assert container.wait() == 0, container.log()
        (main,) = specification["containers"]
        container = self._container(pod_name, main, specification, volumes, address, pause, files)
        ports = {port["name"]: port["containerPort"] for port in main["ports"]}
        pod = Pod(pod_name, template["metadata"]["labels"], address, container, ports, main)
        self.pods.append(pod)
        eventually(lambda: self._is_alive(pod) and pod.probe("startupProbe"), f"the start of {pod_name}")
        return pod

    @staticmethod
    def _is_alive(pod):
        assert pod.container.process.poll() is None, pod.container.log()
        return True

    def _container(self, pod_name, one, specification, volumes, address, pause, files):
        assert set(one) <= CONTAINER, set(one) - CONTAINER
        assert one["securityContext"] == RESTRICTED, one["securityContext"]
        environment = {}
        for variable in one.get("env", []):
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}, variable
            environment[variable["name"]] = address
        mounts = {mount["mountPath"]: (volumes[mount["name"]], mount.get("readOnly", False)) for mount in one["volumeMounts"]}
        user = specification["securityContext"]
        # An ENTRYPOINT gives way to `command`.
        container = Container(
            self.host, f"{pod_name}.{one['name']}", self.image, {"bridge": address}, one["command"], entrypoint=[],
            user=f"{user['runAsUser']}:{user['runAsGroup']}", environment=environment, hostname=pod_name, hosts=self.names,
            volumes={**mounts, **(files or {})}, read_only=True, drops_capabilities=True, no_new_privileges=True, shared=pause)
        self.host.containers.append(container)
        container.start()
        return container

    def _volume(self, pod_name, volume, security):
        """A folder with a volume's files, as the kubelet makes it: the group is fsGroup, which may read secrets."""
        folder, group = self.host.folder / "pods" / pod_name / volume["name"], security["fsGroup"]
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        if "secret" in volume:
            data, mode = self.secrets[volume["secret"]["secretName"]], volume["secret"]["defaultMode"]
            if "items" in volume["secret"]:
                data = {item["path"]: data[item["key"]] for item in volume["secret"]["items"]}
        elif "configMap" in volume:
            data, mode = {name: text.encode() for name, text in self.documents["ConfigMap", volume["configMap"]["name"]]["data"].items()}, 0o644
        else:
            assert "emptyDir" in volume, volume
            data, mode = {}, 0
        for name, contents in data.items():
            (folder / name).write_bytes(contents)
            os.chown(folder / name, 0, group)
            (folder / name).chmod(mode)
        os.chown(folder, 0, group)
        folder.chmod(0o2777 if "emptyDir" in volume else 0o755)
        return folder

    def selected(self, selector):
        return [pod for pod in self.pods if selector.items() <= pod.labels.items()]

    def serve(self):
        """Each port of each Service with an address, at the pods whose readiness probe succeeds."""
        text = "global\n  maxconn 1000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
        for service in self.services:
            name, specification = service["metadata"]["name"], service["spec"]
            for port in specification["ports"] if specification.get("clusterIP") != "None" else []:
                text += f"listen {name}-{port['name']}\n  bind {self.addresses[name]}:{port['port']}\n"
                text += "  option httpchk GET /readyz\n"
                for pod in self.selected(specification["selector"]):
                    probe = pod.specification["readinessProbe"]["httpGet"]
                    text += f"  server {pod.name} {pod.address}:{pod.ports[port['targetPort']]} check port {pod.ports[probe['port']]} inter 200ms fall 1 rise 1\n"
        file = self.host.folder / "services.cfg"
        file.write_text(text)
        return self.host.start(["/usr/sbin/haproxy", "-db", "-f", file])

    def scrapes(self, monitors, folder, place):
        """A configuration of Prometheus with what PodMonitors select; their secrets go to `folder`, which it sees as `place`."""
        jobs = []
        for monitor in (one for one in monitors if one["kind"] == "PodMonitor"):
            specification = monitor["spec"]
            for pod in self.selected(specification["selector"]["matchLabels"]):
                for endpoint in specification["podMetricsEndpoints"]:
                    job = {"job_name": f"{monitor['metadata']['name']}/{pod.name}", "scrape_interval": "1s", "metrics_path": endpoint["path"],
                           "scheme": endpoint.get("scheme", "http"),
                           "static_configs": [{"targets": [f"{pod.address}:{pod.ports[endpoint['port']]}"],
                                               "labels": {"job": pod.labels[specification["jobLabel"]], "pod": pod.name}}]}
                    if "authorization" in endpoint:
                        job["authorization"] = {"credentials_file": self._file(endpoint["authorization"]["credentials"], folder, place)}
                    if "tlsConfig" in endpoint:
                        tls = endpoint["tlsConfig"]
                        job["tls_config"] = {"ca_file": self._file(tls["ca"]["secret"], folder, place), "server_name": tls["serverName"]}
                    jobs.append(job)
        return json.dumps({"scrape_configs": jobs, "rule_files": [f"{place}/rules.json"]})

    def _file(self, selector, folder, place):
        name = f"{selector['name']}.{selector['key']}"
        (folder / name).write_bytes(self.secrets[selector["name"]][selector["key"]])
        return f"{place}/{name}"


def prometheus_rules(documents):
    """The groups of the PrometheusRules, as a file of rules has them."""
    return json.dumps({"groups": [group for one in documents if one["kind"] == "PrometheusRule" for group in one["spec"]["groups"]]})
