#!/usr/bin/env python3
"""Checks deploy/ without Docker and Kubernetes, because neither runs where this project is tested.

yamllint checks every YAML file, kubernetes-validate checks the manifests against the schemas of Kubernetes, hadolint checks the
Dockerfile. The other checks are here: names that must agree, times that must suffice, files that must exist.

    Tests/Checks/check-deploy.py               after `deploy/install-dependencies.sh lint`
    Tests/Checks/check-deploy.py --self-test   shows that it would notice a breach
    Tests/Checks/check-deploy.py --write       writes the PrometheusRule of deploy/kubernetes anew
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(HERE / "Tests/Integration/rigs"))
import kustomize  # noqa: E402

LINT = HERE / ".build/lint/bin"


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return [] if done.returncode == 0 else [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


RULES_HEAD = """# Made from deploy/prometheus/longwire-alerts.yaml by Tests/Checks/check-deploy.py --write. Change that file, not this one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: longwire
  namespace: longwire
  labels: { app.kubernetes.io/name: longwire }
spec:
"""


def rules_manifest(deploy):
    """The alert rules as an object of the Prometheus Operator; comments before the first group stay behind."""
    text = (deploy / "prometheus/longwire-alerts.yaml").read_text()
    return RULES_HEAD + textwrap.indent(text[text.index("groups:"):], "  ")


def limit(text, name, default):
    found = re.search(rf"\b{name}: (\d+)", text)
    return int(found[1]) if found else default


def longest_stop(text):
    """Returns seconds as the gateway computes them (Gateway.longestStopMilliseconds)."""
    return limit(text, "drainSeconds", 2) + 3 * limit(text, "stopTimeoutSeconds", 10) + 10


class Workload:
    """A StatefulSet or a Deployment: its pods' labels, ports by name, and volumes."""

    def __init__(self, document):
        self.name, template = document["metadata"]["name"], document["spec"]["template"]
        self.labels, self.pod = template["metadata"]["labels"], template["spec"]
        (self.container,) = self.pod["containers"]
        self.ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}

    def faults(self, configuration):
        volumes = {volume["name"] for volume in self.pod["volumes"]}
        for one in self.pod["containers"] + self.pod.get("initContainers", []):
            yield from (f"{self.name}: there is no volume {mount['name']}" for mount in one["volumeMounts"] if mount["name"] not in volumes)
        for key, number in re.findall(r'(\w+): (?:{listen: )?"0\.0\.0\.0:(\d+)"', re.sub(r"//.*", "", configuration)):
            if int(number) not in self.ports.values():
                yield f"{self.name}: {key} listens on {number}, which is no port of the pod"


def selectors(document):
    """Every selector of pods that an object has."""
    specification = document.get("spec", {})
    rules = specification.get("ingress", [])
    found = [specification.get("selector"), specification.get("podSelector")]
    found += [peer.get("podSelector") for rule in rules for peer in rule.get("from", [])]
    return [one.get("matchLabels", one) for one in found if one is not None]


def kubernetes(deploy):
    folder, faults = deploy / "kubernetes", []
    every = kustomize.build(folder)
    found = {(one["kind"], one["metadata"]["name"]): one for one in every}
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    there = sorted(path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    if sorted(named) != there:
        faults.append(f"kustomization.yaml lists {sorted(named)}, and there are {there}")
    gateways, senders = Workload(found["StatefulSet", "longwire"]), Workload(found["Deployment", "longwire-sender"])
    workloads = [gateways, senders]
    configuration, sending = ((folder / name).read_text() for name in ("gateway.json5", "sender.json5"))
    need = longest_stop(configuration)
    if gateways.pod["terminationGracePeriodSeconds"] < need:
        faults.append(f"terminationGracePeriodSeconds is {gateways.pod['terminationGracePeriodSeconds']}, and a stop may take {need}")
    if senders.pod["terminationGracePeriodSeconds"] < limit(sending, "stopSeconds", 10) + 10:
        faults.append("terminationGracePeriodSeconds of longwire-sender is less than stopSeconds and ten")
    ready = gateways.container["readinessProbe"]
    notice = ready["periodSeconds"] * ready["failureThreshold"]
    if notice >= limit(configuration, "drainSeconds", 2):
        faults.append(f"readiness is noticed after {notice} s, and the listeners close before")
    governing = found["StatefulSet", "longwire"]["spec"]["serviceName"]
    if ("Service", governing) not in found:
        faults.append(f"there is no service {governing}")
    faults += [*gateways.faults(configuration), *senders.faults(sending)]
    for (kind, name), document in found.items():
        chosen = [[one for one in workloads if wanted.items() <= one.labels.items()] for wanted in selectors(document)]
        faults += [f"{kind} {name} selects pods that there are not" for one in chosen if not one]
        # A Service's ports, and those of a policy, belong to the pods that its first selector names.
        ports = {name: number for one in (chosen[0] if chosen else []) for name, number in one.ports.items()}
        named = [port.get("targetPort", port.get("port")) for port in document.get("spec", {}).get("ports", [])]
        named += [port["port"] for rule in document.get("spec", {}).get("ingress", []) for port in rule["ports"]]
        faults += [f"{kind} {name} names the port {port}, which no pod has" for port in named if port not in ports]
        if kind != "Namespace" and document["metadata"].get("namespace") != "longwire":
            faults.append(f"{kind} {name} has no namespace")
    return faults + exposure(found) + secrets(folder, found, configuration) + monitoring(deploy, workloads)


def exposure(found):
    """Devices come from everywhere, with TLS; every other port is open to named callers alone."""
    faults = []
    for (kind, name), document in found.items():
        if kind == "Service" and document["spec"].get("type", "ClusterIP") != "ClusterIP":
            faults += [f"Service {name} offers the port {port['name']} beyond the Kubernetes cluster" for port in document["spec"]["ports"]
                       if port["name"] != "device-tls"]
        if kind == "NetworkPolicy":
            for rule in document["spec"]["ingress"]:
                ports = [port["port"] for port in rule["ports"]]
                if not all(peer for peer in rule.get("from", [])) or ("from" not in rule and ports != ["device-tls"]):
                    faults.append(f"NetworkPolicy {name} opens {ports} to everybody")
    policies = [document["spec"]["podSelector"]["matchLabels"] for (kind, _), document in found.items() if kind == "NetworkPolicy"]
    for (kind, name), document in found.items():
        if kind in ("StatefulSet", "Deployment") and document["spec"]["template"]["metadata"]["labels"] not in policies:
            faults.append(f"no NetworkPolicy is about the pods of {name}")
    return faults


def secrets(folder, found, configuration):
    """The secrets that README.md makes are those that volumes and configurations name."""
    faults, page = [], (folder / "README.md").read_text()
    (commands,) = re.findall(r"^ *```sh secrets\n(.*?)^ *```$", page, re.M | re.S)
    made = {}
    for kind, name, options in re.findall(r"create secret (tls|generic) (\S+) ((?:[^\\\n]|\\\n)*)", commands):
        made[name] = {"tls.crt", "tls.key"} if kind == "tls" else set(re.findall(r"--from-(?:literal|file)=([A-Za-z0-9.-]+)", options))
    mounted = {}
    for (kind, _), document in found.items():
        volumes = kustomize.pod_of(document).get("volumes", [])
        paths = {mount["name"]: mount["mountPath"] for one in kustomize.pod_of(document).get("containers", []) for mount in one["volumeMounts"]}
        mounted |= {paths[volume["name"]]: volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    if set(mounted.values()) != set(made):
        faults.append(f"volumes name the secrets {sorted(set(mounted.values()))}, and README.md makes {sorted(made)}")
    named = {}
    for text in (configuration, (folder / "sender.json5").read_text()):
        for path, key in re.findall(r'"(/etc/longwire/[a-z-]+)/([A-Za-z0-9.-]+)"', text):
            named.setdefault(mounted.get(path, path), set()).add(key)
    for name, keys in named.items():
        if keys != made.get(name):
            faults.append(f"the configurations name {sorted(keys)} of the secret {name}, and README.md makes {sorted(made.get(name, []))}")
    return faults


def monitoring(deploy, workloads):
    folder, faults = deploy / "kubernetes/monitoring", []
    if (folder / "rules.yaml").read_text() != rules_manifest(deploy):
        faults.append("kubernetes/monitoring/rules.yaml is not made from prometheus/longwire-alerts.yaml; run check-deploy.py --write")
    for document in kustomize.build(folder):
        if document["kind"] != "PodMonitor":
            continue
        name, specification = document["metadata"]["name"], document["spec"]
        chosen = [one for one in workloads if specification["selector"]["matchLabels"].items() <= one.labels.items()]
        if len(chosen) != 1 or specification["jobLabel"] not in chosen[0].labels:
            faults.append(f"PodMonitor {name} selects pods, or takes the job from a label, that there are not")
            continue
        faults += [f"PodMonitor {name} scrapes the port {one['port']}, which no pod has" for one in specification["podMetricsEndpoints"]
                   if one["port"] not in chosen[0].ports]
    return faults


def compose(deploy):
    folder, faults = deploy / "compose", []
    project = yaml.safe_load((folder / "compose.yaml").read_text())
    services = project["services"]
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and not (folder / source).exists():
                faults.append(f"{name} mounts {source}, which is not there")
            elif not source.startswith(".") and source not in project["volumes"]:
                faults.append(f"{name} mounts the volume {source}, which is not declared")
        faults += [f"{name} waits for {one}, which is no service" for one in service.get("depends_on", []) if one not in services]
        faults += [f"{name} has no network {one}" for one in service.get("networks", []) if one != "default" and one not in project["networks"]]
        if "build" in service and not (folder / service["build"]["context"] / service["build"]["dockerfile"]).exists():
            faults.append(f"{name} is built from a file that is not there")
    # Whatever is published beyond the host's loopback is served with TLS.
    beyond = [port for service in services.values() for port in service.get("ports", []) if not port.startswith("127.0.0.1:")]
    if beyond != ["7443:7443"]:
        faults.append(f"compose.yaml publishes {beyond} to every network; only 7443 has TLS")
    if not {"sender", "fake-apple"} <= set(services) or services["fake-apple"].get("profiles") != ["fake"]:
        faults.append("compose.yaml needs the services sender, and fake-apple in the profile fake")
    if "GF_SECURITY_ADMIN_PASSWORD__FILE" not in services["grafana"].get("environment", {}):
        faults.append("grafana starts with the password admin")
    made = set(re.findall(r"(?:^|[ /])(?:token |copy \S+ |/secrets/)([a-z-]+)", (folder / "make-secrets.sh").read_text(), re.M))
    for name in ("gateway.json5", "sender.json5", "prometheus.yaml"):
        named = set(re.findall(r"secrets/([a-z-]+)", (folder / name).read_text()))
        faults += [f"{name} names the secret {one}, which make-secrets.sh does not make" for one in sorted(named - made)]
    need = longest_stop((folder / "gateway.json5").read_text())
    if int(services["gateway"]["stop_grace_period"].rstrip("s")) < need:
        faults.append(f"the gateway's stop_grace_period is too short: a stop may take {need} s")
    return faults


def dockerfile(deploy):
    text, faults = (deploy / "docker/Dockerfile").read_text(), []
    last = text.split("\nFROM ")[-1]
    if not re.search(r"^USER [1-9]", last, re.M):
        faults.append("Dockerfile: the image runs as root")
    if not re.search(r"^HEALTHCHECK .*\"longwire\", \"health\"", last, re.M):
        faults.append("Dockerfile: the image has no health check by longwire")
    for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(\S+) ", text, re.M):
        if not (deploy.parent / source).exists():
            faults.append(f"Dockerfile: {source} is not there")
    configuration = re.sub(r"^ *//.*", "", (deploy / "docker/gateway.json5").read_text(), flags=re.M)
    exposed = set(re.findall(r"\d+", re.search("^EXPOSE (.*)$", last, re.M)[1]))
    for port in re.findall(r'"0\.0\.0\.0:(\d+)"', configuration):
        if port not in exposed:
            faults.append(f"Dockerfile: the image's configuration listens on {port}, which is not exposed")
    # Readers copy this command from four pages.
    (run,) = re.findall(r"^#   (docker run .*)$", text, re.M)
    for page in ("README.md", "README.zh-CN.md", "docs/use/Install.md", "docs/use/Install.zh-CN.md"):
        if run.replace("docker run", "docker run -d", 1) not in (deploy.parent / page).read_text():
            faults.append(f"Dockerfile: {page} has another command than: {run}")
    for port in ("7080", "7081"):
        if f"-p 127.0.0.1:{port}:{port}" not in run:
            faults.append(f"Dockerfile: the documented command publishes {port} beyond the host's loopback")
    return faults


def check(deploy):
    faults = run("yamllint", "-s", "-c", deploy / "yamllint.yaml", *sorted(deploy.rglob("*.yaml")))
    # The objects of the folder monitoring are of the Prometheus Operator, whose schemas these tools do not have.
    manifests = [path for path in sorted((deploy / "kubernetes").glob("*.yaml")) if path.name != "kustomization.yaml"]
    for path in manifests:
        faults += run(LINT / "kubernetes-validate", "--strict", "--quiet", path)
    # The image determines the versions of Debian's packages, and no shell with pipes is used.
    faults += run(LINT / "hadolint", "--ignore", "DL3008", deploy / "docker/Dockerfile")
    faults += run("shellcheck", "-s", "sh", *(path for path in sorted((deploy / "debian").rglob("p*")) if path.is_file() and not path.suffix))
    faults += run("shellcheck", deploy / "debian/build.sh", deploy / "compose/make-secrets.sh", *sorted((deploy / "docker").glob("*.sh")))
    return faults + kubernetes(deploy) + compose(deploy) + dockerfile(deploy)


BREACHES = [
    ("kubernetes/gateways.yaml", "terminationGracePeriodSeconds: 85", "terminationGracePeriodSeconds: 30"),
    ("kubernetes/gateways.yaml", "periodSeconds: 3\n", "periodSeconds: 10\n"),
    ("kubernetes/gateways.yaml", "serviceName: longwire-gateways", "serviceName: longwire"),
    ("kubernetes/gateways.yaml", "replicas: 3", "replica: 3"),
    ("kubernetes/gateways.yaml", "{ name: data, mountPath", "{ name: disk, mountPath"),
    ("kubernetes/services.yaml", "targetPort: http }", "targetPort: web }"),
    ("kubernetes/disruption.yaml", "matchLabels: { app.kubernetes.io/name: longwire }", "matchLabels: { app: longwire }"),
    ("kubernetes/gateway.json5", '"0.0.0.0:7001"', '"0.0.0.0:7002"'),
    ("kubernetes/gateway.json5", "/etc/longwire/tls/tls.crt", "/etc/longwire/tls/chain.pem"),
    ("kubernetes/sender.json5", "gateway-token", "token"),
    ("kubernetes/sender.json5", "0.0.0.0:7090", "0.0.0.0:7091"),
    ("kubernetes/README.md", "--from-literal=redis=", "--from-literal=password="),
    ("kubernetes/README.md", "create secret tls longwire-tls", "create secret tls longwire-device-tls"),
    ("kubernetes/services.yaml", "- { name: device-tls, port: 7443, targetPort: device-tls }", "- { name: admin-tls, port: 7444, targetPort: admin-tls }"),
    ("kubernetes/network.yaml", "        - { port: device-tls }\n", "        - { port: device-tls }\n        - { port: admin-tls }\n"),
    ("kubernetes/network.yaml", "    - from:\n        - namespaceSelector:\n            matchLabels: { longwire.dev/publisher: \"true\" }\n      ports:", "    - ports:"),
    ("kubernetes/network.yaml", "    - from:\n        - podSelector:\n            matchLabels: { app.kubernetes.io/name: longwire }", "    - from:\n        - podSelector:\n            matchLabels: { app.kubernetes.io/name: gateway }"),
    ("kubernetes/sender.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 15"),
    ("kubernetes/sender.yaml", "configMap: { name: longwire-sender }", "configMap: { name: other }"),
    ("kubernetes/kustomization.yaml", "files: [gateway.json5]", "literals: [a=b]"),
    ("kubernetes/monitoring/pod-monitors.yaml", "port: admin-tls", "port: admin"),
    ("kubernetes/monitoring/pod-monitors.yaml", "jobLabel: app.kubernetes.io/name", "jobLabel: app"),
    ("prometheus/longwire-alerts.yaml", "for: 1m", "for: 2m"),
    ("kubernetes/kustomization.yaml", "  - network.yaml\n", ""),
    ("compose/compose.yaml", "./make-secrets.sh:", "./make.sh:"),
    ("compose/compose.yaml", "stop_grace_period: 45s", "stop_grace_period: 10s"),
    ("compose/compose.yaml", "depends_on: [gateway, sender]", "depends_on: [graphite]"),
    ("compose/compose.yaml", '"127.0.0.1:7081:7081"', '"7081:7081"'),
    ("compose/compose.yaml", "profiles: [fake]", "profiles: [apple]"),
    ("compose/compose.yaml", "GF_SECURITY_ADMIN_PASSWORD__FILE", "GF_SECURITY_ADMIN_EMAIL"),
    ("compose/make-secrets.sh", "token sender $gateway", "token lease $gateway"),
    ("compose/sender.json5", "/secrets/fake-apple/AuthKey.p8", "/secrets/fake/AuthKey.p8"),
    ("docker/Dockerfile", "USER 10001:10001\n", ""),
    ("docker/Dockerfile", "COPY deploy/docker/gateway.json5", "COPY deploy/docker/longwire.json5"),
    ("docker/Dockerfile", "FROM debian:bookworm-slim", "FROM debian"),
    ("docker/Dockerfile", "EXPOSE 7000 7443 7001", "EXPOSE 7000 7001"),
    ("docker/Dockerfile", "-p 127.0.0.1:7081:7081", "-p 7081:7081"),
    ("docker/Dockerfile", "deploy/docker/entrypoint.sh", "deploy/docker/start.sh"),
    ("docker/entrypoint.sh", 'exec "$@"', "exec $@"),
    ("compose/prometheus.yaml", "rule_files:", "global: {}\nrule_files:"),
]


def judge(change):
    """Whether a copy of deploy/, changed by `change`, has a fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "deploy"
        shutil.copytree(HERE / "deploy", copy)
        shutil.copytree(HERE / "docs/use", copy.parent / "docs/use")
        for page in HERE.glob("README*.md"):
            shutil.copy(page, copy.parent)
        change(copy)
        try:
            return any(one(copy) for one in (kubernetes, compose, dockerfile)) or bool(check(copy))
        except AssertionError:
            # kustomize.py refuses what it does not know.
            return True


def self_test():
    if judge(lambda copy: None):
        return ["a copy without a change has a fault"]
    for name, old, new in BREACHES:
        text = (HERE / "deploy" / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        if not judge(lambda copy: (copy / name).write_text(text.replace(old, new, 1))):
            return [f"this went unnoticed: {name}: {old!r} -> {new!r}"]
    return []


if __name__ == "__main__":
    if "--write" in sys.argv:
        (HERE / "deploy/kubernetes/monitoring/rules.yaml").write_text(rules_manifest(HERE / "deploy"))
        sys.exit(0)
    faults = self_test() if "--self-test" in sys.argv else check(HERE / "deploy")
    for fault in faults:
        print(f"check-deploy: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)
