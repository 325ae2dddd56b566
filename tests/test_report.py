"""The report: what it shows is what was recorded, and nothing a policy writes gets out of its place on the page."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hdl_jax.domains.domain import Problem, Verdict
from hdl_jax.metrics import MetricsWriter
from hdl_jax.policy.texts import EMBEDDED, INSTRUCT
from hdl_jax.report import main, write_report
from hdl_jax.report_anatomy import SHADES, visible
from hdl_jax.report_figures import Line, line_chart, number, stacked_chart
from hdl_jax.rollout.store import write_groups
from hdl_jax.rollout.trajectory import BranchPoint, Group, Reflection, Trajectory, Turn

HOSTILE = [
    "<script>alert(1)</script>",
    "</span></div><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "\ud800 \udfff half characters",
    "\u202eright to left\u2066",
    "<!-- -->]]></style><style>body{display:none}",
    "&lt;already&amp;escaped;",
    "line\r\nbreaks\u2028and\x00nul",
    "x" * 50_000,
]


class Page(html.parser.HTMLParser):
    """Collects a page's tags, attributes and texts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.open: list[tuple[str, dict[str, str]]] = []
        self.spans: list[tuple[str, str, str]] = []  # class, title, text
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "script":
            return
        self.text += data
        if self.open and self.open[-1][0] in ("span", "b"):
            attrs = self.open[-1][1]
            self.spans.append((attrs.get("class", ""), attrs.get("title", ""), data))


def _trajectory(tokens, generated, fork, origin, reward, turns=(), said=""):
    generated = np.array(generated, bool)
    verdict = (
        None
        if reward is None
        else Verdict(reward, reward == 1, f"score {reward}{said}", ((f"found{said}", reward > 0),))
    )
    log_probs = np.where(generated, -0.25, 0).astype(np.float32)
    return Trajectory(np.array(tokens, np.int32), generated, log_probs, 2, fork, turns, verdict, False, origin)


def _group(texts=("", "", "")):
    """Prompt 0 1; root 2 3 [obs 4 5] 6 7; continuations redraw token 3 and token 6. Token i's text is `t{i}.`"""
    action, observation, reflection = texts
    turns = (Turn(2, 4, action, observation), Turn(6, 8, action, ""))
    mask = [0, 0, 1, 1, 0, 0, 1, 1]
    root = _trajectory(range(8), mask, 2, None, 0.5, turns, observation)
    scores = np.float32([0, 0, 0.1, 4.0, 0, 0, 1.0, 0.0])
    conts = (
        _trajectory([0, 1, 2, 30, 31], [0, 0, 1, 1, 1], 3, 0, 1.0),
        _trajectory([0, 1, 2, 3, 4, 5, 60], [0, 0, 1, 1, 0, 0, 1], 6, 0, 0.0),
    )
    points = (BranchPoint(0, 3, 4.0, 1), BranchPoint(0, 6, 1.0, 1))
    reflections = (Reflection(reflection, np.int32([1]), "success", True),)
    return Group(Problem("errands/train/7", 7, "train"), (root, *conts), (scores,), points, reflections)


def _write(workdir, groups, decode=None, config=None):
    with MetricsWriter(workdir) as writer:
        writer.write(0, {"eval/validation/score": 0.3, "eval/validation/score_se": 0.02})
        writer.write(1, {"reward/mean": 0.4, "rollout/generated_tokens": 900, "rollout/generated_tokens/root": 900})
    (workdir / "config.json").write_text(json.dumps(config or {"method": "hdl", "branch": {"signal": "hindsight"}}))
    decode = decode or (lambda ids: "".join(f"t{i}." for i in ids))
    advantages = [np.arange(len(g.trajectories)) - 0.5 for g in groups]
    write_groups(workdir, 10, groups, advantages, decode)
    return Page(write_report(workdir).read_text(encoding="utf-8"))


def _check_contained(page):
    assert page.tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "link", "base", "form", "a"} & set(page.tags)
    assert page.tags.count("style") == page.tags.count("body") == 1
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "href", "srcset"), (tag, name)
        assert "url(" not in value
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page.text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(tmp_path, text):
    plain = Page(_write_plain(tmp_path / "plain")).tags
    config = {"method": text, "seed": 1, text: text}
    page = _write(tmp_path / "run", [_group((text, text, text))], decode=lambda ids: text, config=config)
    _check_contained(page)
    assert page.tags.count("div") == plain.count("div")
    assert visible(text)[:20] in _escaped(page.text)
    assert (tmp_path / "run" / "report.html").stat().st_size < 3_000_000


def _write_plain(workdir):
    _write(workdir, [_group(("a", "b", "c"))], config={"method": "a", "seed": 1})
    return (workdir / "report.html").read_text()


def _escaped(text):
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&quot;")
        .replace("'", "&#x27;")
    )


@settings(deadline=None, max_examples=30)
@given(text=st.text(st.one_of(st.sampled_from("<>&\"'/=!-\x1b\u202e\ud800"), st.characters(exclude_categories=()))))
def test_visible_is_inert_and_keeps_ordinary_text(text):
    shown = visible(text)
    assert not set(shown) & set("<>\"'\x1b\u202e\ud800")
    shown.encode("utf-8")
    page = Page(f'<b title="{shown}">{shown}</b>')
    assert page.tags == ["b"]
    assert page.attributes == [("b", "title", page.text)]
    if text.isascii() and text.isprintable():
        assert page.text == text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_the_policy_and_its_prompts_are_shown_as_text(tmp_path, text):
    prompts = {"reflection": f"reflect\n{text}", "hindsight": "told {feedback}", "retry_failure": text, "lead": " "}
    policy = {"name": text, "shape": {"d_model": 48, text: text}, "stop_ids": [2, 7], "texts": prompts}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    page = _write(tmp_path, [_group()])
    _check_contained(page)
    shown = _escaped(page.text)
    assert visible(text)[:20] in shown and "told {feedback}" in page.text
    assert "d_model48" in page.text and "[2, 7]" in page.text
    assert page.tags.count("details") == 3 and page.tags.count("pre") == 3 + 1  # and the group's prompt
    assert ("pre", "class", "template") in page.attributes


def test_the_shipped_prompts_are_all_shown(tmp_path):
    for texts in (EMBEDDED, INSTRUCT):
        policy = {"name": "p", "shape": {}, "stop_ids": [], "texts": dataclasses.asdict(texts)}
        (tmp_path / "policy.json").write_text(json.dumps(policy))
        page = _write(tmp_path, [_group()])
        for name, wording in policy["texts"].items():
            assert name == "lead" or wording in page.text, name


def test_a_run_without_policy_json_shows_no_policy(tmp_path):
    page = _write(tmp_path, [_group()])
    assert page.tags.count("details") == 1 and "prompts" not in page.text


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "a", "texts": {}, "shape": {}}', '{"texts": 3}', "\xff"])
def test_a_policy_json_that_is_none_is_named(tmp_path, content, capsys):
    _write(tmp_path, [_group()])
    (tmp_path / "policy.json").write_bytes(content.encode("latin-1"))
    assert main([str(tmp_path)]) == 1
    assert "policy.json does not describe a policy" in capsys.readouterr().err


def test_tokens_flags_and_branches(tmp_path):
    page = _write(tmp_path, [_group(("act", "see", "why"))])
    coloured = [(css, text) for css, _, text in page.spans if re.fullmatch(r"c\d+", css)]
    assert [text for _, text in coloured] == ["t2.", "t3.", "t6.", "t7."]  # generated tokens of the root, in order
    assert coloured[1][0] == f"c{SHADES - 1}"  # the highest score
    assert coloured[3][0] == "c0"
    shades = [int(css[1:]) for css, _ in coloured]
    assert shades[3] < shades[0] < shades[2] < shades[1]
    titles = {text: title for css, title, text in page.spans if re.fullmatch(r"c\d+", css)}
    assert "score 4 " in titles["t3."] and "log-prob -0.25" in titles["t3."] and "token 3" in titles["t3."]
    body = [(css, text) for css, _, text in page.spans]
    flag_1 = body.index(("flag", "1"), body.index(("turn", "1")))
    assert body[flag_1 + 1] == (f"c{SHADES - 1}", "t3.")
    assert body[body.index(("flag", "2"), flag_1) + 1][1] == "t6."
    assert ("grey", "t4.t5.") in body  # the observation, in one piece
    new = [text for css, text in body if css == "new"]
    assert new == ["t30.t31.", "t60."]  # a continuation shows what it sampled itself
    assert "why" in page.text and "says SUCCESS, disagrees" in page.text
    assert "✓ foundsee" in page.text and "score 0.5see" in page.text
    advantages = [(css, text) for css, text in body if css.startswith("advantage")]
    assert advantages == [("advantage level", "-0.500"), ("advantage above", "+0.500"), ("advantage below", "+1.500")]


def test_a_group_without_scores_lists_its_members(tmp_path):
    group = _group()
    flat = Group(group.problem, (*group.trajectories[:1], _trajectory([0, 1, 9], [0, 0, 1], 2, None, None)))
    page = _write(tmp_path, [flat])
    assert "trajectory 1" in page.text and "trajectory 2" in page.text
    assert "not verified" in page.text
    assert not [css for css, _, _ in page.spans if re.fullmatch(r"c\d+", css)]


def test_the_choice_names_every_group_on_the_page(tmp_path):
    page = _write(tmp_path, [_group(), _group(), _group()])
    values = [value for tag, name, value in page.attributes if (tag, name) == ("option", "value")]
    ids = [value for tag, name, value in page.attributes if tag == "div" and name == "id"]
    assert values == ids == ["s10g0", "s10g1", "s10g2"]
    assert sum((tag, name) == ("div", "hidden") for tag, name, _ in page.attributes) == 2


def test_the_policy_allows_the_script_and_nothing_else(tmp_path):
    page = _write(tmp_path, [_group()])
    source = (tmp_path / "report.html").read_text()
    script = re.search(r"<script>(.*)</script>", source, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [v for _, name, v in page.attributes if name == "content" and "default-src" in v]
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_metrics_alone_make_a_report(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(
            1, {"reward/mean": 0.5, "localize/oracle_auc/hindsight": 0.7, "localize/oracle_auc/hindsight_se": 0.1}
        )
    page = Page(write_report(tmp_path).read_text())
    assert "0.700 ± 0.100" in page.text and "Anatomy" not in page.text
    with MetricsWriter(tmp_path / "empty"):
        pass
    write_report(tmp_path / "empty")


def test_command_line(tmp_path, capsys):
    assert main([]) == 2
    assert main([str(tmp_path)]) == 1
    assert "no metrics at" in capsys.readouterr().err
    _write(tmp_path, [_group()])
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12, "12"), (0.12345, "0.123"), (1234, "1,234"), (26_500, "26.5k"), (1_570_000, "1.57M"), (-3e9, "-3G")],
)
def test_number(value, text):
    assert number(value) == text


def test_line_chart_draws_the_data():
    figure = line_chart("t", [Line("a <b>", [0, 10, 20], [0.0, 1.0, 0.5], [0.1, 0.1, 0.0]), Line("absent", [], [])])
    points = [tuple(map(float, p.split(","))) for p in re.search(r'points="([^"]+)"', figure)[1].split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert y0 - y2 == pytest.approx(y2 - y1, abs=0.11)  # 0.5 lies half-way; larger values are higher up
    assert y1 < y0
    assert "a &lt;b&gt;" in figure and "absent" not in figure
    assert line_chart("t", [Line("none", [], [])]) == ""


@example([(0.0, 5e-324)], None)
@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-1e12, 1e12), st.floats(0, 1e6)), min_size=1, max_size=5),
    st.sampled_from([None, (0.0, 1.0)]),
)
def test_line_chart_stays_in_its_frame(points, y_range):
    values, errors = zip(*points, strict=True)
    figure = line_chart("t", [Line("a", range(len(values)), values, errors)], y_range=y_range)
    for pair in re.search(r'points="([^"]+)"', figure)[1].split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= 540 and 0 <= y <= 250


def test_stacked_chart_stacks():
    figure = stacked_chart("t", [1, 2], [("a", [1.0, 2.0]), ("b", [3.0, 2.0]), ("unused", [0.0, 0.0])])
    bars = [(float(y), float(h)) for y, h in re.findall(r'y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', figure)]
    assert len(bars) == 4 and "unused" not in figure
    assert bars[1][1] == pytest.approx(3 * bars[0][1], abs=0.2)
    assert bars[1][0] + bars[1][1] == pytest.approx(bars[0][0], abs=0.11)  # b stands on a
    assert stacked_chart("t", [1], [("a", [0.0])]) == ""


# ---- evaluation -----------------------------------------------------------------------------------------------------


def _evaluated(workdir, *sets):
    """A run of three evaluations of each set, the middle one its best."""
    with MetricsWriter(workdir) as writer:
        for step, score in ((0, 0.2), (10, 0.5), (20, 0.4)):
            row = {"eval/score": score, "eval/score_se": 0.01}
            for i, name in enumerate(sets):
                of_set = {"score": score + i / 10, "score_se": 0.02, "problems": 1319, "samples": 2638, "failed": step}
                of_set |= {"pass@2": 0.6, "pass@2_se": 0.1, "pass@16": 0.75, "pass@16_se": 0.1}
                of_set |= {"truncated": 0.125, "unparsed": 0.25, "tokens": 4000, "success": score + i / 10}
                row |= {f"eval/{name}/{measure}": value for measure, value in of_set.items()}
            writer.write(step, row)
    return Page(write_report(workdir).read_text(encoding="utf-8"))


def test_sets_are_rows_of_a_table_and_their_mean_is_the_headline(tmp_path):
    page = _evaluated(tmp_path, "aime24", "minerva")
    text = " ".join(page.text.split())
    assert "0.200 ± 0.010mean of the sets before, step 0" in text and "0.400 ± 0.010mean of the sets now" in text
    assert "aime24 score before" not in text and "minerva score now" not in text, "one headline, not one a set"
    mean, aime, minerva = ("mean of the sets", "aime24", "minerva")
    rest = ("0.750 at k=16", "12.5%", "25.0%", "20", "4,000")
    assert f"{mean}0.200 ± 0.0100.500 ± 0.010 at 100.400 ± 0.010" in text
    for name, (first, best, last) in ((aime, (0.2, 0.5, 0.4)), (minerva, (0.3, 0.6, 0.5))):
        scores = f"{first:.3f} ± 0.020{best:.3f} ± 0.020 at 10{last:.3f} ± 0.020"
        assert "".join((name, "1,319 × 2", scores, *rest)) in text


def test_one_set_is_its_own_headline(tmp_path):
    text = " ".join(_evaluated(tmp_path, "validation").text.split())
    assert "0.400 ± 0.020validation score now, step 20" in text and "mean of the sets" not in text


def test_a_run_without_an_evaluation_has_no_such_table(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(0, {"eval/validation/score": math.nan, "reward/mean": 0.1})
    assert "Evaluation" not in Page(write_report(tmp_path).read_text(encoding="utf-8")).text
