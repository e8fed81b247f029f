"""The YAML that the documents show is sound; the virtual environment of these tests has the parser."""

import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parent.parent / "check-yaml.py"


@pytest.mark.parametrize("words", [["--self-test"], []])
def test_the_yaml_of_the_documents_is_sound(words):
    done = subprocess.run([sys.executable, CHECK, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
