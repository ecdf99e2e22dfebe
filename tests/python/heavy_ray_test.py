#!/usr/bin/env python3
"""Runs python/tests/test_ray.py in an environment with Ray: a cluster of three nodes on this machine.

usage: heavy_ray_test.py WINNOW VENV, or `make test-heavy`; PYTHONPATH has the package

It is not part of `make test`, since Ray's wheels are hundreds of megabytes and a cluster takes seconds to start.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))

from client_support import ensure_packages  # noqa: E402

PACKAGES = ["ray[serve]==2.60.0", "numpy==1.26.4", "pandas==2.2.3", "pytest==8.4.2"]

if __name__ == "__main__":
    ensure_packages(__file__, PACKAGES)
    import pytest

    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / "python/tests/test_ray.py")]))
