"""The prepared form of every set: a tensorflow-datasets builder, in array_record files, without TensorFlow.

`tfds.builder("math_sets/NAME", data_dir=...)` opens a prepared set wherever this module has been imported, and
`tfds.builder_from_directory` where it has not. Rows are in the order of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hdl_jax.data.row import MathRow, to_record
from hdl_jax.data.sets import SETS

try:
    import tensorflow_datasets as tfds
except ImportError as error:
    raise ImportError("prepared data sets need tensorflow-datasets: pip install 'hdl_jax[math]'") from error

NAME, VERSION = "math_sets", "1.0.0"  # of the folder and of the features below


class MathSets(tfds.core.GeneratorBasedBuilder):
    """One configuration a set.

    Features: `id`, `question`, `answers` (as the publisher has them), `grading` and `meta` (JSON: how an answer is
    compared, and what else the publisher says). What it was made from is in `info.metadata`.

    Args:
        rows: what to write; not needed to read. metadata: what they were made from.
        kwargs: as every builder has them: config, data_dir, file_format.
    """

    VERSION = tfds.core.Version(VERSION)
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name, description=s.title) for name, s in SETS.items()]

    def __init__(self, *, rows: Sequence[MathRow] = (), metadata: Mapping[str, Any] | None = None, **kwargs: Any):
        self._rows, self._made_from = rows, dict(metadata or {})
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        features = {
            "id": text,
            "question": text,
            "answers": tfds.features.Sequence(text),
            "grading": text,
            "meta": text,
        }
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(self._made_from),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {SETS[self.builder_config.name].split: self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(self._rows):
            yield number, to_record(row)
