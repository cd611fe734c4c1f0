"""Which folders are packages: reftile/, and conformance/ and spec/ as parts of reftile."""

from setuptools import find_packages, setup

suites = [f"reftile.conformance.{name}" for name in find_packages("conformance")]

setup(
    packages=[
        *find_packages(include=["reftile", "reftile.*"]),
        "reftile.conformance",
        *suites,
        "reftile.spec",
    ],
    package_dir={"reftile.conformance": "conformance", "reftile.spec": "spec"},
)
