"""The report's account of the policy: its shape, and the prompts of ours that it was given, as WORKDIR/policy.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hdl_jax.report_anatomy import visible

# Field of hdl_jax.policy.texts.Texts -> what a reader may call it. `lead` is a space or nothing.
PROMPTS = {
    "reflection": "Reflection: asks the policy about an attempt",
    "turn": "One turn of the attempt in it",
    "hindsight": "Hindsight: added to the first message of the second context",
    "retry_failure": "Retry points of a failed attempt (the reflection baseline)",
    "retry_success": "Retry points of a successful attempt (the reflection baseline)",
    "numbered_turn": "One turn of the attempt in them",
}


def policy_html(workdir: Path) -> str:
    """What policy.json tells, folded up; nothing where there is no such file.

    Raises ValueError naming the file where it is not what a run writes.
    """
    path = workdir / "policy.json"
    if not path.is_file():
        return ""
    try:
        policy = json.loads(path.read_text(encoding="utf-8"))
        texts, shape = dict(policy["texts"]), dict(policy["shape"])
        fields = {"policy": policy["name"], **shape, "stop ids": policy["stop_ids"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not describe a policy: {error!r}") from error
    cells = "".join(
        f"<tr><td>{visible(name)}</td><td>{visible(_shown(value))}</td></tr>" for name, value in fields.items()
    )
    prompts = "".join(
        f'<h5>{title}</h5><pre class="template">{visible(str(texts[name]))}</pre>'
        for name, title in PROMPTS.items()
        if name in texts
    )
    return (
        f"<details><summary>policy</summary><table>{cells}</table></details>"
        '<details><summary>prompts</summary><p class="soft">The run\'s own wording. What the domain, the policy and '
        f"the verifier write takes the places in braces.</p>{prompts}</details>"
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
