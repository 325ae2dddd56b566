"""Reads what hdl_jax.data.prepare wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hdl_jax.data.row import MathRow, digest, from_record
from hdl_jax.data.sets import SETS


def read_rows(name: str, data_dir: str | Path) -> list[MathRow]:
    """All problems of a prepared set, in the order of its source. 103,000 take a few seconds.

    Every row is read and compared with the hash that was recorded when the set was prepared.

    Args:
        name: of the set, as SETS has it. data_dir: the folder of prepared sets.

    Raises:
        ValueError: the name is unknown, or the files are damaged or changed.
        FileNotFoundError: the set is not prepared there; tells how to.
        ImportError: tensorflow-datasets is not installed.
    """
    builder = _open(name, data_dir)
    from tensorflow_datasets import decode
    from tensorflow_datasets.proto import tf_example_pb2

    damaged = f"the prepared set in {builder.data_path} is damaged; prepare it again"
    try:
        # The library decodes one record at a time through numpy, 8 times slower than their protocol buffers allow.
        source = builder.as_data_source(SETS[name].split, deserialize_method=decode.DeserializeMethod.RAW_BYTES)
        rows = []
        for raw in source.__getitems__(range(len(source))):
            features = tf_example_pb2.Example.FromString(raw).features.feature
            texts = {key: [value.decode() for value in feature.bytes_list.value] for key, feature in features.items()}
            answers = texts.pop("answers")
            rows.append(from_record(answers=answers, **{key: value for key, (value,) in texts.items()}))
        recorded = builder.info.metadata["content_sha256"]
    except Exception as error:  # each layer of the files has its own
        raise ValueError(f"{damaged}: {error!r}") from error
    if digest(rows) != recorded:
        raise ValueError(f"{damaged}: its rows are not those that were recorded")
    return rows


def provenance(name: str, data_dir: str | Path) -> dict[str, Any]:
    """What a prepared set was made from; `prepare.prepare` has the fields. Raises as `read_rows`, but reads no rows."""
    return dict(_open(name, data_dir).info.metadata)


def folder(name: str, data_dir: str | Path) -> Path:
    """Where the files of a set are, prepared or not. Raises ValueError: the name is unknown."""
    if name not in SETS:
        raise ValueError(f"there is no set {name!r}: it must be one of {', '.join(SETS)}")
    return Path(data_dir) / "math_sets" / name


def _open(name: str, data_dir: str | Path) -> Any:
    from hdl_jax.data.builder import VERSION, tfds

    path = folder(name, data_dir) / VERSION
    try:
        return tfds.builder_from_directory(path)
    except Exception as error:
        if path.exists():
            raise ValueError(f"the prepared set in {path} is damaged; prepare it again: {error}") from error
    raise FileNotFoundError(f"{name} is not prepared in {data_dir}: get its file, then prepare it:\n{SETS[name].where}")
