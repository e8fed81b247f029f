"""Reads a kustomization as `kubectl kustomize` does, as far as deploy/kubernetes uses it; another key is an error.

    for document in build(pathlib.Path("deploy/kubernetes")): …
"""

import copy
import hashlib
import json

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator"}
# Kinds without a namespace.
_OF_THE_CLUSTER = {"Namespace"}


def build(folder):
    """The objects of a folder, in no particular order."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(kustomization) <= KNOWN, f"kustomization.yaml has {set(kustomization) - KNOWN}"
    documents = [copy.deepcopy(one) for name in kustomization["resources"] for one in yaml.safe_load_all((folder / name).read_text())]
    renamed = {}
    for generator in kustomization.get("configMapGenerator", []):
        assert set(generator) <= {"name", "files", "options"}, generator
        data = {name: (folder / name).read_text() for name in generator["files"]}
        name = f"{generator['name']}-{content_hash(data)}"
        renamed[generator["name"]] = name
        documents.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **generator.get("options", {})}, "data": data})
    for document in documents:
        if document["kind"] not in _OF_THE_CLUSTER:
            document["metadata"]["namespace"] = kustomization["namespace"]
        for volume in pod_of(document).get("volumes", []):
            if "configMap" in volume:
                named = volume["configMap"]["name"]
                assert named in renamed, f"{document['metadata']['name']} mounts the ConfigMap {named}, which is not generated"
                volume["configMap"]["name"] = renamed[named]
    return documents


def pod_of(document):
    """The pod that an object makes; an empty one where it makes none."""
    return document.get("spec", {}).get("template", {}).get("spec", {}) if isinstance(document.get("spec"), dict) else {}


def content_hash(data):
    """The suffix of a generated ConfigMap, as kustomize 5 computes it: ten hex digits of SHA-256, of which some are replaced."""
    text = json.dumps({"data": data, "kind": "ConfigMap", "name": ""}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # As Go's encoder writes it.
    for plain in "<>&\u2028\u2029":
        text = text.replace(plain, f"\\u{ord(plain):04x}")
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return digest.translate(str.maketrans("013ae", "ghkmt"))
