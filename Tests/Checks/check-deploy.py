#!/usr/bin/env python3
"""Checks deploy/ without Docker and Kubernetes, because neither runs where this project is tested.

yamllint checks every YAML file, kubernetes-validate checks the manifests against the schemas of Kubernetes, hadolint checks the
Dockerfile. The other checks are here: names that must agree, times that must suffice, files that must exist.

    Tests/Checks/check-deploy.py               after `deploy/install-dependencies.sh lint`
    Tests/Checks/check-deploy.py --self-test   shows that it would notice a breach
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2]
LINT = HERE / ".build/lint/bin"


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return [] if done.returncode == 0 else [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def documents(folder):
    """Returns every object of the manifests by kind and name."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Kustomization":
                found[document["kind"], document["metadata"]["name"]] = document
    return found


def limit(text, name, default):
    found = re.search(rf"\b{name}: (\d+)", text)
    return int(found[1]) if found else default


def longest_stop(text):
    """Returns seconds as the gateway computes them (Gateway.longestStopMilliseconds)."""
    return limit(text, "drainSeconds", 2) + 3 * limit(text, "stopTimeoutSeconds", 10) + 10


def kubernetes(deploy):
    folder, faults = deploy / "kubernetes", []
    found = documents(folder)
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    there = sorted(path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    if sorted(listed) != there:
        faults.append(f"kustomization.yaml lists {sorted(listed)}, and there are {there}")
    gateways = found["StatefulSet", "longwire"]["spec"]
    pod, labels = gateways["template"]["spec"], gateways["template"]["metadata"]["labels"]
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    configuration = found["ConfigMap", "longwire"]["data"]["gateway.json5"]
    need = longest_stop(configuration)
    if pod["terminationGracePeriodSeconds"] < need:
        faults.append(f"terminationGracePeriodSeconds is {pod['terminationGracePeriodSeconds']}, and a stop may take {need}")
    ready = container["readinessProbe"]
    notice = ready["periodSeconds"] * ready["failureThreshold"]
    if notice >= limit(configuration, "drainSeconds", 2):
        faults.append(f"readiness is noticed after {notice} s, and the listeners close before")
    if gateways["serviceName"] not in [name for kind, name in found if kind == "Service"]:
        faults.append(f"there is no service {gateways['serviceName']}")
    for (kind, name), document in found.items():
        selector = document.get("spec", {}).get("selector") or document.get("spec", {}).get("podSelector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            if not wanted.items() <= labels.items():
                faults.append(f"{kind} {name} selects {wanted}, and the pods have {labels}")
        named = [port.get("targetPort", port.get("port")) for port in document.get("spec", {}).get("ports", [])]
        named += [port["port"] for rule in document.get("spec", {}).get("ingress", []) for port in rule["ports"]]
        faults += [f"{kind} {name} names the port {port}, which no pod has" for port in named if port not in ports]
        if kind != "Namespace" and document["metadata"].get("namespace") != "longwire":
            faults.append(f"{kind} {name} has no namespace")
    for key, number in re.findall(r'(\w+): (?:{listen: )?"0\.0\.0\.0:(\d+)"', re.sub(r"//.*", "", configuration)):
        if int(number) not in ports.values():
            faults.append(f"{key} listens on {number}, which is no port of the pod")
    volumes = {volume["name"] for volume in pod["volumes"]}
    for one in pod["containers"] + pod["initContainers"]:
        faults += [f"there is no volume {mount['name']}" for mount in one["volumeMounts"] if mount["name"] not in volumes]
    secrets = set(re.findall(r"/etc/longwire/secrets/([a-z-]+)", configuration))
    made = set(re.findall(r"--from-literal=([a-z-]+)=", (folder / "README.md").read_text()))
    if secrets != made:
        faults.append(f"the configuration names the secrets {sorted(secrets)}, and README.md makes {sorted(made)}")
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
    if not {"apns", "fake-apple"} <= set(services) or services["fake-apple"].get("profiles") != ["fake"]:
        faults.append("compose.yaml needs the services apns, and fake-apple in the profile fake")
    if "GF_SECURITY_ADMIN_PASSWORD__FILE" not in services["grafana"].get("environment", {}):
        faults.append("grafana starts with the password admin")
    made = set(re.findall(r"(?:^|[ /])(?:token |copy \S+ |/secrets/)([a-z-]+)", (folder / "make-secrets.sh").read_text(), re.M))
    for name in ("gateway.json5", "apns.json5", "prometheus.yaml"):
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
    # The first line of a command that a reader copies is in the Dockerfile and in Install.md.
    (run,) = re.findall(r"^#   (docker run .*)$", text, re.M)
    for page in ("Install.md", "Install.zh-CN.md"):
        if run.replace("docker run", "docker run -d", 1) not in (deploy.parent / "docs/use" / page).read_text():
            faults.append(f"Dockerfile: {page} has another command than: {run}")
    for port in ("7080", "7081"):
        if f"-p 127.0.0.1:{port}:{port}" not in run:
            faults.append(f"Dockerfile: the documented command publishes {port} beyond the host's loopback")
    return faults


def check(deploy):
    faults = run("yamllint", "-s", "-c", deploy / "yamllint.yaml", *sorted(deploy.rglob("*.yaml")))
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
    ("kubernetes/configuration.yaml", '"0.0.0.0:7081"', '"0.0.0.0:7082"'),
    ("kubernetes/README.md", "--from-literal=redis=", "--from-literal=password="),
    ("kubernetes/kustomization.yaml", "  - network.yaml\n", ""),
    ("compose/compose.yaml", "./make-secrets.sh:", "./make.sh:"),
    ("compose/compose.yaml", "stop_grace_period: 45s", "stop_grace_period: 10s"),
    ("compose/compose.yaml", "depends_on: [gateway, apns]", "depends_on: [graphite]"),
    ("compose/compose.yaml", '"127.0.0.1:7081:7081"', '"7081:7081"'),
    ("compose/compose.yaml", "profiles: [fake]", "profiles: [apple]"),
    ("compose/compose.yaml", "GF_SECURITY_ADMIN_PASSWORD__FILE", "GF_SECURITY_ADMIN_EMAIL"),
    ("compose/make-secrets.sh", "token apns-sender $gateway", "token apns-lease $gateway"),
    ("compose/apns.json5", "/secrets/fake-apple/AuthKey.p8", "/secrets/fake/AuthKey.p8"),
    ("docker/Dockerfile", "USER 10001:10001\n", ""),
    ("docker/Dockerfile", "COPY deploy/docker/gateway.json5", "COPY deploy/docker/longwire.json5"),
    ("docker/Dockerfile", "FROM debian:bookworm-slim", "FROM debian"),
    ("docker/Dockerfile", "EXPOSE 7000 7443 7001", "EXPOSE 7000 7001"),
    ("docker/Dockerfile", "-p 127.0.0.1:7081:7081", "-p 7081:7081"),
    ("docker/Dockerfile", "deploy/docker/entrypoint.sh", "deploy/docker/start.sh"),
    ("docker/entrypoint.sh", 'exec "$@"', "exec $@"),
    ("compose/prometheus.yaml", "rule_files:", "global: {}\nrule_files:"),
]


def self_test():
    for name, old, new in BREACHES:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "deploy"
            shutil.copytree(HERE / "deploy", copy)
            shutil.copytree(HERE / "docs/use", copy.parent / "docs/use")
            text = (copy / name).read_text()
            assert old in text, f"{name} has no {old!r}"
            (copy / name).write_text(text.replace(old, new, 1))
            judges = [kubernetes, compose, dockerfile]
            if not any(judge(copy) for judge in judges) and not check(copy):
                return [f"this went unnoticed: {name}: {old!r} -> {new!r}"]
    return []


if __name__ == "__main__":
    faults = self_test() if "--self-test" in sys.argv else check(HERE / "deploy")
    for fault in faults:
        print(f"check-deploy: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)
