"""The prepared form of every set: a tensorflow-datasets builder, in array_record files, without TensorFlow.

`tfds.builder("math_sets/NAME", data_dir=...)`, or `code_sets/NAME`, opens a prepared set wherever this module has been
imported, and `tfds.builder_from_directory` where it has not. Rows are in the order of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hdl_jax.data.problem_set import ProblemSet
from hdl_jax.data.row import WholeRow, to_record
from hdl_jax.data.sets import ALL_SETS, CODE_SETS, SETS

try:
    import tensorflow_datasets as tfds
except ImportError as error:
    raise ImportError("prepared data sets need tensorflow-datasets: pip install 'hdl_jax[math]'") from error

VERSION = "1.0.0"  # of the features below


def _configs(sets: Mapping[str, ProblemSet]) -> list[Any]:
    return [tfds.core.BuilderConfig(name=name, description=s.title) for name, s in sets.items()]


class _Sets(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """One configuration a set.

    Features: `id`, `question` and `meta` (JSON: what else the publisher says), and those of the kind. What it was made
    from is in `info.metadata`.

    Args:
        rows: what to write; not needed to read. metadata: what they were made from.
        kwargs: as every builder has them: config, data_dir, file_format.
    """

    VERSION = tfds.core.Version(VERSION)
    TEXTS: tuple[str, ...]  # features that are one text
    LISTS: tuple[str, ...]  # features that are a list of texts

    def __init__(self, *, rows: Iterable[WholeRow] = (), metadata: Mapping[str, Any] | None = None, **kwargs: Any):
        self._rows, self._made_from = rows, dict(metadata or {})
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        features = dict.fromkeys(("id", "question", "meta", *self.TEXTS), text)
        features |= dict.fromkeys(self.LISTS, tfds.features.Sequence(text))
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(self._made_from),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {ALL_SETS[self.builder_config.name].split: self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(self._rows):
            yield number, dict(to_record(row))


class MathSets(_Sets):
    """`answers` as the publisher has them, and `grading` (JSON: how an answer is compared)."""

    BUILDER_CONFIGS = _configs(SETS)
    TEXTS, LISTS = ("grading",), ("answers",)


class CodeSets(_Sets):
    """`inputs` and `outputs` of the tests, the function to call (`entry`), and code to start from (`starter`)."""

    BUILDER_CONFIGS = _configs(CODE_SETS)
    TEXTS, LISTS = ("entry", "starter"), ("inputs", "outputs")


BUILDERS: dict[str, type[_Sets]] = {"math_sets": MathSets, "code_sets": CodeSets}  # by ProblemSet.FOLDER
