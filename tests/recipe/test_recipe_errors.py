"""What a user reads when a recipe is wrong: one line of what and where, one of what to do."""

import pytest
from recipe_cases import BASE, read

from rlctl.algorithm.presets import PRESETS
from rlctl.errors import UserError
from rlctl.recipe import load, load_text
from rlctl.recipe.checks import warnings
from rlctl.recipe.spellings import FOREIGN


def refused(*overrides, text=BASE):
    with pytest.raises(UserError) as caught:
        read(*overrides, text=text)
    error = caught.value
    assert error.exit_code == 2
    assert len(error.message.splitlines()) == 1
    assert len(error.hint.splitlines()) <= 1
    return error


def test_file_line_key_value_and_range():
    error = refused(text=BASE + "rollout:\n  prompts_per_step: 4\n  group_size: 1\n")
    assert error.message == (
        "base.yaml:9: rollout.group_size: is 1, must be at least 2 for group-relative algorithms"
    )
    error = refused(text=BASE + "optim: {max_grad_norm: 0}\n")
    assert error.message == "base.yaml:7: optim.max_grad_norm: is 0, must be more than 0"


def test_place_of_an_override_is_the_override():
    assert refused("seed=-1").message == "--set seed=-1: is -1, must be at least 0"
    error = refused("data.train={kind: arithmetic, digit: 3}")
    assert error.message.endswith("data.train.digit: unknown key `digit`")
    assert error.hint == "did you mean `digits`?"


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("rollout.groupsize=8", "did you mean `group_size`?"),
        ("rollout.group-size=8", "did you mean `group_size`?"),
        ("rollout.group_siz=8", "did you mean `group_size`?"),
        ("modle.kind=tiny", "did you mean `model`?"),
        ("rollout.warmup_steps=1", "did you mean `optim.warmup_steps`?"),
        ("pass_at=[1]", "did you mean `eval.pass_at`?"),
        ("budget.group_size=8", "did you mean `rollout.group_size`?"),
        ("algorithm.clip.hihg=0.3", "did you mean `high`?"),
        ("model.lora.r_ank=3", "did you mean `rank`?"),
    ],
)
def test_f02_unknown_misplaced_and_hyphenated_keys(override, hint):
    """F-02, at every level; F-07: at most three lines."""
    error = refused(override)
    assert "unknown key" in error.message
    assert override in error.message
    assert error.hint == hint


def test_f02_unknown_keys_in_a_file_have_their_line():
    assert refused(text=BASE + "eval_steps: 3\n").message.startswith("base.yaml:7: eval_steps: unknown key")


@pytest.mark.parametrize(
    "override",
    [
        "verifier={kind: exact, ignorecase: true}",
        "verifier=[{kind: exact}, {kind: regex, patern: x}]",
        "data.train=[{kind: countdown, number: 3}]",
        "eval.sets=[{kind: jsonl, path: x, promt: q}]",
        "engine={kind: transformers, rows: 3}",
    ],
)
def test_f03_plug_ins_are_checked_too(override):
    assert "unknown key" in refused(override).message


@pytest.mark.parametrize(
    ("override", "must"),
    [
        ("rollout.group_size=8.5", "is 8.5, must be a whole number"),
        ('rollout.group_size="8"', 'is "8", must be a whole number'),
        ("rollout.group_size=true", "is true, must be a whole number"),
        ("rollout.temperature=true", "is true, must be a number"),
        ("optim.learning_rate=abc", "is \"abc\", must be 'auto' or a number"),
        ("optim.learning_rate=.inf", "must be 'auto' or a finite number"),
        ("rollout=5", "is 5, must be a table of keys"),
        ("eval.pass_at=3", "is 3, must be a list"),
        ("eval.pass_at=[0]", "eval.pass_at.0: is 0, must be at least 1"),
        ("resources.gpus=5", "is 5, must be 'auto' or at most 1"),
        ("optim.betas=[0.9]", "optim.betas.1: is missing"),
        ("version=2", "is 2, must be 1"),
        ("name=a/b", "must be letters"),
    ],
)
def test_rule2_wrong_types_and_ranges(override, must):
    assert must in refused(override).message


@pytest.mark.parametrize("word", ["None", "null"])
@pytest.mark.parametrize(
    "key", ["rollout.top_k", "optim.learning_rate", "budget.minutes", "model.lora", "early_stop"]
)
def test_f04_the_text_none_is_no_null(key, word):
    error = refused(f'{key}="{word}"')
    assert error.hint == "to mean no value, write null without quotes"


def test_f06_a_boolean_where_a_word_is_meant():
    assert refused("model.dtype=true").hint == 'to mean the text, quote it: "true"'
    assert refused("track.mlflow=false").hint == 'to mean the text, quote it: "false"'
    assert refused("name=8").hint == 'quote it: "8"'


def test_f01_a_word_that_is_no_float_has_its_line():
    error = refused(text=BASE + "optim:\n  learning_rate: abc\n")
    assert error.message.startswith("base.yaml:8: optim.learning_rate: ")


def test_f08_explicit_zero_false_and_empty_survive():
    recipe = read(
        "model.lora.dropout=0",
        "eval.at_start=false",
        "data.system_prompt=",
        "track.rollouts.rows=0",
        "eval.pass_at=[]",
    )
    assert recipe.model.lora.dropout == 0
    assert recipe.eval.at_start is False
    assert recipe.data.system_prompt == ""
    assert recipe.track.rollouts.rows == 0
    assert recipe.eval.pass_at == ()


@pytest.mark.parametrize("name", PRESETS)
def test_a04_one_completion_a_prompt_is_refused(name):
    """A-04: the mean of a group of one is its own reward."""
    error = refused(f"algorithm={name}", "rollout.group_size=1")
    assert "rollout.group_size=1: is 1, must be at least 2" in error.message


@pytest.mark.parametrize("value", ["0", "-1", "0.0"])
def test_b15_training_needs_a_temperature(value):
    """B-15: and `top_k: null` is the only way to switch it off."""
    assert "must be more than 0" in refused(f"rollout.temperature={value}").message
    assert "must be at least 1" in refused("rollout.top_k=0").message
    assert "must be at least 1" in refused("rollout.top_k=-1").message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["eval.samples=2"], "pass@8 needs at least 8 samples"),
        (["eval.samples=64", "eval.pass_at=[65]"], "pass@65 needs at least 65 samples"),
        (["eval.temperature=0"], "all 64 samples of a problem would be the same"),
        (["eval.samples=null", "eval.temperature=0"], "all 8 samples"),
        (["budget.steps=null"], "has no limit"),
        (["model.context=1000"], "prompt 512 + completion 1024 tokens do not fit"),
        (["eval.max_completion_length=4000"], "prompt 512 + completion 4000 tokens do not fit"),
        (["rollout.top_p=0.9"], "training samples the whole law"),
        (["rollout.top_k=5"], "training samples the whole law"),
        (["optim.schedule=linear", "budget={steps: null, tokens: 5}"], "ends at budget.steps"),
        (["algorithm.staging.minibatches=17"], "16 prompts a step cannot be split into 17"),
    ],
)
def test_f09_f14_every_cross_check_has_a_failing_example(overrides, message):
    """F-09, F-14."""
    error = refused(*overrides)
    assert message in error.message
    assert error.message.startswith("--set ")
    assert error.hint


@pytest.mark.parametrize(
    "overrides",
    [
        ["eval.samples=8"],
        ["eval.samples=1", "eval.pass_at=[1]", "eval.temperature=0"],
        ["budget={steps: null, tokens: 5}"],
        ["model.context=1536"],
        ["rollout.top_p=0.9", "algorithm.correction={kind: none}"],
        ["rollout.top_k=5", "algorithm.correction={kind: none}"],
        ["optim.schedule=linear"],
        ["algorithm.staging.minibatches=16"],
        ["rollout.group_size=2"],
        ["rollout.temperature=0.01"],
    ],
)
def test_f09_the_edge_is_allowed(overrides):
    read(*overrides)


def test_a14_evaluation_has_its_own_number_of_samples():
    """A-14."""
    recipe = read("eval.samples=12", "rollout.group_size=5")
    assert (recipe.eval.samples, recipe.rollout.group_size) == (12, 5)


def test_key_of_another_kind_needs_the_kind_too():
    error = refused("model.path=Qwen/Qwen3-0.6B")
    assert error.message == "--set model.path=Qwen/Qwen3-0.6B: kind tiny has no `path`"
    assert error.hint == "it needs another kind: set model.kind=pretrained too"
    for order in (1, -1):
        recipe = read(*["model.path=Qwen/Qwen3-0.6B", "model.kind=pretrained"][::order])
        assert recipe.model.path == "Qwen/Qwen3-0.6B"


def test_kinds():
    assert refused("engine=transformers").hint == "write {kind: transformers}"
    assert refused("data.train=arithmetc").hint.startswith("write {kind: gsm8k | ")
    assert refused("data.train.kind=gsm9k").hint == "did you mean `gsm8k`?"
    assert refused("verifier.deadline_s=3").hint == "set verifier.kind too, to math"
    assert refused("verifier=autoo").message.endswith("must be 'auto' or a table of keys or a list")
    assert refused(text="version: 1").message == "base.yaml: name: is missing (and 3 more)"
    assert "dapo" in refused("algorithm=dap").message


@pytest.mark.parametrize(
    ("override", "ours"),
    [
        ("rollout.n=8", "rollout.group_size"),
        ("num_generations=8", "rollout.group_size"),
        ("data.train_batch_size=8", "rollout.prompts_per_step"),
        ("actor.ppo_epochs=2", "algorithm.staging.epochs"),
        ("rollout.max_new_tokens=8", "rollout.max_completion_length"),
        ("algorithm.epsilon_high=0.3", "algorithm.clip.high"),
        ("optim.lr=1e-6", "optim.learning_rate"),
        ("adam.lr=1e-6", "optim.learning_rate"),
        ("max_steps=8", "budget.steps"),
        ("eval.interval=8", "eval.every"),
        ("save_total_limit=8", "checkpoint.keep"),
        ("algorithm.dynamic_filtering_reward_range=[0, 1]", "algorithm.admit"),
        ("algorithm.rollout_is_threshold=2", "algorithm.correction"),
    ],
)
def test_rule8_foreign_spellings_are_refused_with_ours(override, ours):
    assert refused(override).hint.endswith(f"is called `{ours}`")


def test_rule8_every_foreign_name_points_to_a_key_of_ours():
    from rlctl.recipe import Recipe
    from rlctl.recipe.schema import walk

    known = {dotted for dotted, _, _ in walk(Recipe)}
    assert not set(FOREIGN.values()) - known


def test_rule8_two_aliases_are_accepted():
    recipe = read("rollout.num_generations=4", "algorithm.beta=0.04")
    assert (recipe.rollout.group_size, recipe.algorithm.kl) == (4, 0.04)
    error = refused("rollout.num_generations=4", "rollout.group_size=4")
    assert "rollout.num_generations and rollout.group_size mean the same" in error.message
    error = refused(text=BASE + "rollout:\n  num_generations: 1\n")
    assert error.message.startswith("base.yaml:8: rollout.group_size: is 1")
    with_both = read("rollout.group_size=4", text=BASE + "rollout: {num_generations: 16}\n")
    assert with_both.rollout.group_size == 4


def test_several_errors_show_the_most_helpful_one_and_their_number():
    error = refused("seed=-1", "rollout.group_siz=3", "eval.every=0")
    assert error.message == "--set rollout.group_siz=3: unknown key `group_siz` (and 2 more)"


@pytest.mark.parametrize("override", ["budget.steps", "=3", "a..b=3", ".a=3", ""])
def test_an_override_is_key_equals_value(override):
    error = refused(override)
    assert error.message == f"--set {override}: is no key=value"


def test_an_override_that_is_no_yaml():
    assert refused("name=[").message.startswith("--set name=[: the value is no YAML")


def test_missing_folder_unreadable_and_unknown_recipes(tmp_path):
    with pytest.raises(UserError, match="did you mean `quickstart`"):
        load("quickstat")
    with pytest.raises(UserError, match="is a folder"):
        load(tmp_path)
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(UserError, match=r"did you mean .*recipe\.yaml"):
        load(tmp_path)
    with pytest.raises(UserError, match="a recipe is a table of keys"):
        load(tmp_path / "recipe.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "bad.yaml")


def test_rule9_a_cut_law_warns():
    recipe = read("rollout.top_p=0.9", "algorithm.correction={kind: none}", "eval.sets=[{kind: arithmetic}]")
    assert [note for note in warnings(recipe) if "top_p" in note]
    assert warnings(read("eval.sets=[{kind: arithmetic}]")) == []


def test_other_warnings():
    assert "nothing is evaluated" in warnings(read())[0]
    short = ["rollout.max_completion_length=8", "eval.sets=[{kind: maze}]"]
    punished = read(*short, "algorithm.shaping=[{kind: overlong, buffer: 8}]")
    assert "every completion is punished" in warnings(punished)[0]
    assert warnings(read(*short, "algorithm.shaping=[{kind: overlong, buffer: 7}]")) == []
    assert warnings(read(*short, "algorithm=dapo")) == []


def test_text_of_a_recipe_that_is_empty():
    with pytest.raises(UserError, match=r"e\.yaml: a recipe is a table"):
        load_text("", "e.yaml")


def test_a_long_override_is_shown_in_one_short_line():
    error = refused(f"data.system_prompt=[{'x, ' * 500}\n]")
    assert len(error.message) < 300
