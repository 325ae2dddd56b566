"""Configs: the default runs, every value that cannot work is refused by name before any work, arguments are parsed."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from hdl_jax import config as config_lib
from hdl_jax import plan, setup_run
from hdl_jax.config import default, get_run, parse_arg, total_group_size, validate


def changed(**fields):
    """The default config with some fields changed, `__` for the dot; the type is the test's business."""
    config = default()
    with config.ignore_type():
        for name, value in fields.items():
            *section, field = name.split("__")
            node = config[section[0]] if section else config
            node[field] = value
    return config


def test_the_default_and_every_method_and_signal_are_valid():
    validate(default())
    for signal in ("hindsight", "entropy", "uniform"):
        validate(get_run(signal=signal))
    validate(get_run(method="grpo"))


def test_the_oracle_needs_hdls_branches_whatever_is_trained():
    grpo = changed(method="grpo", branch__points_per_root=3, branch__roots=40)
    with pytest.raises(ValueError, match="(?s)branch.continuations.*branch.roots=40"):
        validate(grpo)
    grpo.oracle.problems = 0
    validate(grpo)
    validate(changed(method="grpo", rollout__group_size=12))  # the sum binds HDL alone


LONGEST = default().rollout.max_prompt_tokens + default().rollout.max_response_tokens
BAD = [
    ("seed", -1),
    ("method", "ppo"),
    ("method", ""),
    ("branch__signal", "attention"),
    ("policy__dtype", "float8"),
    *[
        (name, value)
        for name in (
            "total_steps",
            "rollout__problems_per_step",
            "rollout__group_size",
            "rollout__max_prompt_tokens",
            "rollout__max_response_tokens",
            "rollout__max_action_tokens",
            "branch__roots",
            "branch__points_per_root",
            "branch__min_spacing",
            "reflection__max_tokens",
            "engine__rows",
            "engine__lanes",
            "engine__context_tokens",
            "engine__block",
            "engine__tile",
            "engine__width",
            "engine__chunks",
            "engine__steps",
            "engine__workers",
            "learn__minibatches",
            "learn__tokens_per_microbatch",
            "eval__every",
            "filter__samples",
            "domain__workers",
            "oracle__positions",
            "oracle__samples",
            "checkpoint__every",
            "log__rollouts_every",
        )
        for value in (0, -3)
    ],
    *[
        (name, value)
        for name in (
            "rollout__temperature",
            "reflection__temperature",
            "domain__limit_s",
            "learn__learning_rate",
            "learn__max_grad_norm",
            "learn__clip_low",
            "learn__clip_high",
        )
        for value in (0.0, -0.1, math.nan, math.inf)
    ],
    *[("eval__temperature", value) for value in (-0.1, math.nan, math.inf)],
    # A temperature that is nearly 0 is not meant.
    *[(f"{section}__temperature", 1e-6) for section in ("rollout", "reflection", "eval")],
    *[("eval__sets", value) for value in ((), ("test",), ("@4",), ("test@0",), ("test@-1",), ("a@1", "a@2"))],
    ("eval__problems", -1),
    ("filter__min_rate", -0.1),
    ("filter__max_rate", 1.1),
    ("filter__min_rate", 0.995),
    ("learn__weight_decay", -0.1),
    ("learn__weight_decay", math.nan),
    ("learn__beta1", 1.0),
    ("learn__beta1", -0.1),
    ("learn__beta2", 1.0),
    ("learn__beta2", math.nan),
    ("learn__clip_low", 1.0),
    ("learn__minibatches", default().rollout.problems_per_step + 1),
    ("oracle__problems", -1),
    ("seed", 2**31),
    ("checkpoint__best", -1),
    ("log__rollout_share", 0.0),
    ("log__rollout_share", 1.5),
    ("branch__continuations", ()),
    ("branch__continuations", (7,)),
    ("branch__continuations", (7, 0)),
    ("branch__continuations", (8, -1)),
    ("branch__continuations", (3.0, 4.0)),
    ("branch__continuations", ("3", "4")),
    ("branch__roots", default().engine.rows + 1),
    ("engine__tile", default().engine.width + 1),
    ("engine__context_tokens", LONGEST - 1),
    ("learn__tokens_per_microbatch", LONGEST - 1),
    ("learn__attention", "flash"),
]


@pytest.mark.parametrize("name, value", BAD, ids=[f"{name}={value}" for name, value in BAD])
def test_a_value_that_cannot_work_is_refused_by_name(name, value):
    config = changed(**{name: value})
    with pytest.raises(ValueError) as error:
        validate(config)
    assert name.replace("__", ".") in str(error.value)
    assert str(value) in str(error.value)


def test_all_wrong_fields_are_named_at_once():
    with pytest.raises(ValueError) as error:
        validate(changed(total_steps=0, method="ppo", learn__beta1=2.0))
    for name in ("total_steps=0", "method='ppo'", "learn.beta1=2.0"):
        assert name in str(error.value)


# ---- group sizes (H8) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("roots, points, continuations", [(2, 2, (3, 4)), (2, 1, (7,)), (4, 2, (1, 2))])
def test_h8_configurations_of_sixteen(roots, points, continuations):
    config = changed(branch__roots=roots, branch__points_per_root=points, branch__continuations=continuations)
    validate(config)
    assert total_group_size(config)[0] == 16


def test_h8_a_sum_that_is_not_the_group_size_is_refused_and_shown():
    config = changed(branch__continuations=(2, 3))
    with pytest.raises(ValueError, match=r"2 x \(1 \+ 2 \+ 3\) = 12, but rollout\.group_size=16"):
        validate(config)
    config.rollout.group_size = 12
    validate(config)
    assert total_group_size(config)[0] == 12


def test_h8_grpo_takes_any_group_size_and_ignores_the_branches():
    config = changed(method="grpo", rollout__group_size=5, branch__continuations=(9, 9))
    validate(config)
    assert total_group_size(config) == (5, "5")


def test_roots_must_fit_the_rows_that_hold_them():
    with pytest.raises(ValueError, match=r"branch\.roots=2: engine\.rows=1 cannot hold that many"):
        validate(changed(engine__rows=1))
    validate(changed(engine__rows=2))


@pytest.mark.parametrize(("tile", "width"), [(3, 16), (32, 16), (16, 8), (2, 7)])
def test_a_width_that_is_not_whole_tiles_is_refused(tile, width):
    with pytest.raises(ValueError, match=rf"engine\.width={width}: must be a multiple of engine\.tile={tile}"):
        validate(changed(engine__tile=tile, engine__width=width))


@pytest.mark.parametrize(("tile", "width"), [(1, 7), (4, 16), (8, 8)])
def test_a_width_of_whole_tiles_need_not_divide_the_lanes(tile, width):
    validate(changed(engine__tile=tile, engine__width=width, engine__lanes=5))


# ---- arguments of the config file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arg, parsed",
    [
        (None, {}),
        ("", {}),
        ("method=grpo", {"method": "grpo"}),
        ("method=grpo,signal=entropy,seed=1", {"method": "grpo", "signal": "entropy", "seed": "1"}),
    ],
)
def test_parse_arg(arg, parsed):
    assert parse_arg(arg) == parsed


@pytest.mark.parametrize("arg", ["grpo", "method=", "=grpo", "method=grpo,", "method=grpo,,seed=1", "seed"])
def test_parse_arg_refuses_what_is_no_pair(arg):
    with pytest.raises(ValueError, match="name=value"):
        parse_arg(arg)


@pytest.fixture(scope="module")
def quickstart():
    path = Path(__file__).parents[1] / "configs" / "quickstart.py"
    spec = importlib.util.spec_from_file_location("quickstart", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config


def test_quickstart_arguments(quickstart):
    assert quickstart().to_dict() == quickstart("").to_dict() == default().to_dict()
    config = quickstart("method=grpo,signal=entropy,seed=1")
    assert (config.method, config.branch.signal, config.seed) == ("grpo", "entropy", 1)
    validate(config)
    with pytest.raises(ValueError, match="learning_rate"):
        quickstart("learning_rate=1")
    with pytest.raises(ValueError, match=r"branch\.signal='gradient'"):
        validate(quickstart("signal=gradient"))
    for seed in ("x", "-1", "1.5"):
        with pytest.raises(ValueError, match=f"seed={seed}"):
            quickstart(f"seed={seed}")


def test_a_field_that_does_not_exist_and_a_value_of_another_type_are_refused():
    config = default().lock()
    with pytest.raises(AttributeError, match="learning"):
        config.learn.learning = 1.0
    with pytest.raises(TypeError, match="total_steps"):
        config.total_steps = "many"
    with pytest.raises(TypeError, match="continuations"):
        config.branch.continuations = 7


# ---- the data and the files, before any work ------------------------------------------------------------------------


def test_a_prompt_longer_than_its_bucket_is_refused_with_the_problems_name():
    config = changed(rollout__max_prompt_tokens=3)
    domain, chat = setup_run.make_domain(config), setup_run.make_policy(config).chat
    with pytest.raises(ValueError, match=r"errands/train/\d+: its prompt has \d+ tokens.*rollout\.max_prompt_tokens=3"):
        setup_run.check_prompts(config, domain, chat, ("train",))
    with pytest.raises(ValueError, match=r"rollout\.max_prompt_tokens=3"):
        plan.plan(config)


def test_the_longest_prompt_is_what_the_limit_is_compared_with():
    config = default()
    domain, chat = setup_run.make_domain(config), setup_run.make_policy(config).chat
    few = domain.problems("validation")[:50]

    class Few:
        name, start = domain.name, staticmethod(domain.start)

        @staticmethod
        def problems(split):
            return few

    lengths = [len(chat.prompt(domain.start(p).opening())) for p in few]
    config.rollout.max_prompt_tokens = max(lengths)
    assert setup_run.check_prompts(config, Few(), chat, ("validation",)) == {"validation": max(lengths)}
    config.rollout.max_prompt_tokens = max(lengths) - 1
    with pytest.raises(ValueError, match=f"has {max(lengths)} tokens"):
        setup_run.check_prompts(config, Few(), chat, ("validation",))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"domain__name": "chess"}, r"domain\.name='chess'"),
        ({"eval__sets": ("validation@4", "holdout@1")}, "holdout"),
        ({"oracle__problems": 10**6}, r"oracle\.problems=1000000, but errands/validation has \d+ problems"),
        ({"rollout__problems_per_step": 10**6}, r"rollout\.problems_per_step=1000000, but errands/train has"),
        ({"rollout__group_size": 15}, r"= 16, but rollout\.group_size=15"),
    ],
)
def test_the_plan_refuses_what_a_run_would(change, message):
    with pytest.raises(ValueError, match=message):
        plan.plan(changed(**change))


def test_weights_that_are_not_there_are_named(tmp_path):
    config = default()
    config.policy.source = f"errands:{tmp_path / 'nowhere.safetensors'}"
    with pytest.raises(FileNotFoundError, match=r"nowhere\.safetensors: `python -m hdl_jax\.warmstart`"):
        plan.plan(config)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    config = default()
    (tmp_path / "bad.safetensors").write_bytes(b"no tensors here")
    config.policy.source = f"errands:{tmp_path / 'bad.safetensors'}"
    with pytest.raises(ValueError, match="bad.safetensors"):
        setup_run.make_policy(config).load(None)


def test_the_plan_shows_what_a_run_would_take():
    text = plan.plan(default())
    config = default()
    for part in (
        "hdl, signal hindsight",
        f"{config.rollout.problems_per_step} problems x branch.roots x (1 + ",
        "2 x (1 + 3 + 4) = 16",
        f"{config.rollout.problems_per_step * 16 * config.rollout.max_response_tokens:,} response tokens",
        f"{config.engine.rows} rows of {config.engine.context_tokens} tokens, {config.engine.lanes} lanes of ",
        "parameters",
        f"{config.total_steps} steps",
    ):
        assert part in text, text


def test_every_lane_can_hold_the_longest_answer_or_reflection():
    config = changed(reflection__max_tokens=400)
    shape, engine = config_lib.cache_shape(config), config.engine
    assert (shape.rows, shape.lanes, shape.prefix, shape.block) == (
        engine.rows,
        engine.lanes,
        engine.context_tokens,
        engine.block,
    )
    assert shape.suffix > 400
    assert config_lib.cache_shape(default()).suffix > default().rollout.max_response_tokens
