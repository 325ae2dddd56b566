"""The frame of the reports: one HTML page, complete in itself, that loads nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

from hdl_jax.report_anatomy import SHADES

_STYLE = Path(__file__).with_name("assets") / "report.css"


def _shade_rules() -> str:
    """White to amber to brick: lightness falls steadily, so that the order survives colour blindness and grey print."""
    stops = ((255, 255, 255), (253, 218, 140), (240, 138, 72), (196, 62, 44))
    rules = []
    for shade in range(SHADES):
        place = shade / (SHADES - 1) * (len(stops) - 1)
        i = min(int(place), len(stops) - 2)
        mix = [round(a + (b - a) * (place - i)) for a, b in zip(stops[i], stops[i + 1], strict=True)]
        text = ";color:#fff" if shade >= SHADES - 2 else ""
        colour = f"rgb({mix[0]},{mix[1]},{mix[2]})"
        rules.append(f".c{shade} {{ background:{colour};fill:{'#d9dee2' if shade == 0 else colour}{text} }}")
    return "\n".join(rules)


def page(title: str, body: str, script: str = "") -> str:
    """A complete HTML page. `title` is escaped, `body` is HTML, `script` is JavaScript.

    The content security policy allows the style and this one script, by its hash: should anything in the body ever
    escape its escaping, the browser will not run it or fetch for it.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE.read_text(encoding='utf-8')}{_shade_rules()}</style></head>\n"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )
