#!/usr/bin/env python3
"""Reads every block of YAML in the Markdown of docs/: it parses, and its Kubernetes objects fit together.

    Tests/check-yaml.py               reads docs/*.md and README*.md
    Tests/check-yaml.py --self-test   shows that it would notice a breach
"""

import pathlib
import re
import sys

import yaml

FENCE = re.compile(r"^```(ya?ml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def objects(text, name):
    """The documents of all blocks of one page; what does not parse is a breach."""
    found, breaches = [], []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        try:
            found += [(line, one) for one in yaml.safe_load_all(match.group(2)) if one is not None]
        except yaml.YAMLError as error:
            breaches.append(f"{name}:{line}: {error}")
    return found, breaches


def containers(pod):
    return pod.get("containers", []) + pod.get("initContainers", [])


def check(text, name):
    found, breaches = objects(text, name)

    def tell(line, what):
        breaches.append(f"{name}:{line}: {what}")

    things = [(line, one) for line, one in found if isinstance(one, dict) and "kind" in one]
    services = {one["metadata"]["name"]: one for _, one in things if one["kind"] == "Service"}
    configs = {one["metadata"]["name"] for _, one in things if one["kind"] == "ConfigMap"}
    labels = []
    for line, one in things:
        for key in ("apiVersion", "metadata"):
            if key not in one:
                tell(line, f"{one['kind']} without {key}")
        if one["kind"] not in ("StatefulSet", "Deployment"):
            continue
        spec = one["spec"]
        template = spec["template"]
        labels.append(template["metadata"]["labels"])
        if not spec["selector"]["matchLabels"].items() <= labels[-1].items():
            tell(line, "the selector does not choose the template's pods")
        if one["kind"] == "StatefulSet" and spec.get("serviceName") not in services:
            tell(line, f"serviceName {spec.get('serviceName')} is no Service of this page")
        volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
        for claim in spec.get("volumeClaimTemplates", []):
            volumes[claim["metadata"]["name"]] = claim
        for volume in volumes.values():
            source = volume.get("configMap", {}).get("name")
            if source and source not in configs:
                tell(line, f"ConfigMap {source} is not on this page")
        for container in containers(template["spec"]):
            ports = {port["name"] for port in container.get("ports", [])}
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    tell(line, f"volume {mount['name']} is not there")
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                port = container.get(probe, {}).get("httpGet", {}).get("port")
                if isinstance(port, str) and port not in ports:
                    tell(line, f"{probe} asks a port {port} that is not there")
    for line, one in things:
        if one["kind"] in ("Service", "PodDisruptionBudget"):
            selector = one["spec"].get("selector", {})
            selector = selector.get("matchLabels", selector)
            if not any(selector.items() <= label.items() for label in labels):
                tell(line, f"{one['kind']} {one['metadata']['name']} chooses no pod of this page")
    return breaches


def self_test():
    good = "```yaml\na: [1, 2]\n```\n"
    assert not check(good, "good")
    service = "```yaml\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: x}}\n```\n"
    for bad in ("```yaml\na: [1\n```\n", service, service.replace("apiVersion: v1\n", "")):
        assert check(bad, "bad"), f"this went unnoticed: {bad}"
    print("check-yaml: the self-test passed")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    pages = sorted(root.glob("docs/*.md")) + sorted(root.glob("README*.md"))
    breaches = [breach for page in pages for breach in check(page.read_text(), page.relative_to(root))]
    count = sum(len(FENCE.findall(page.read_text())) for page in pages)
    for breach in breaches:
        print(breach)
    if breaches:
        return 1
    print(f"check-yaml: {count} blocks of YAML are sound")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main())
