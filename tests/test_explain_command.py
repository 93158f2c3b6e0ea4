"""`tinyrl explain` as one types it: flags in every style, two languages, plain errors."""

import pytest
from typer.testing import CliRunner

from tinyrl.cli import app
from tinyrl.explain import FlagError, explain

MIS = ["--use-tis", "--custom-tis-function-path=a.b.compute_mis_weights_with_cp"]


def run(*words, **env):
    done = CliRunner().invoke(app, ["explain", *words], env={"COLUMNS": "90", **env})
    return done.exit_code, done.stdout, done.stderr


def test_the_command_says_it_all():
    status, out, err = run("verl", "rollout_is=sequence", "rollout_is_threshold=2.0")
    assert (status, err) == (0, "")
    line = " ".join(out.split())
    for words in (
        "verl v0.9.0, 2026-08-14, verl-project/verl at 483b8a009ba3",
        "level sequence, by product",
        "operation truncate:",
        "bounds rho at most 2",
        "where decoupled, three policies",
        "denominator unchanged",
        'Correction("sequence", "truncate", None, 2.0), LossView(anchor="recompute")',
        "presets: verl/decoupled_seq_is",
        "Traps 1. Product or mean",
    ):
        assert words in line
    assert "T = 10 tokens" in " ".join(
        run("verl", "rollout_is=sequence", "--tokens", "10")[1].split()
    )


def test_the_command_speaks_chinese():
    status, out, err = run("trl", "use_vllm=true", "--lang", "zh")
    assert (status, out, err) == run("trl", "use_vllm=true", TINYRL_LANG="zh")
    assert (status, err) == (0, "")
    for words in (
        "层级",
        "序列级（连乘）",
        "屏蔽",
        "分母",
        "全部 token",
        "陷阱",
        "长度陷阱",
    ):
        assert words in out


@pytest.mark.parametrize(
    "words",
    [
        ["--use-tis", "--tis-clip", "2.5"],
        ["use_tis=true", "tis_clip=2.5"],
        ["--use_tis=True", "--tis-clip=2.5"],
        ["--tis-clip", "2.5", "--use-tis"],
        ["--use-tis", "true", "tis_clip='2.5'"],
        ["+a.b.use_tis=1", "a.tis-clip=2.5"],
    ],
)
def test_flags_are_read_in_every_style(words):
    assert explain("slime", words).correction.upper == 2.5
    assert run("slime", *words)[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verll"], "no framework 'verll' is known here; near it: verl"),
        (["x"], "no framework 'x' is known here; known: verl, trl, slime"),
        (
            ["verl", "rollout_iss=token"],
            "no flag 'rollout_iss' of verl is known here; near it",
        ),
        (["verl", "rollout_iz=token"], "near it: rollout_is"),
        (["verl", "rollout_is=tokens"], "one of token, sequence (near it: token), or null"),
        (["verl", "rollout_is=token", "rollout_is=sequence"], "is given twice"),
        (["verl", "rollout_is"], "'rollout_is' is no flag: write name=value"),
        (["verl", "--rollout_is"], "rollout_is needs a value"),
        (["verl", "--rollout_is", "--bypass_mode"], "rollout_is needs a value"),
        (["verl", "bypass_mode=maybe"], "bypass_mode must be true or false, not 'maybe'"),
        (["verl", "rollout_is_threshold=-2"], "must be a number above 0, or lower_upper"),
        (["verl", "rollout_is_threshold=3_2"], "must be a number above 0, or lower_upper"),
        (["verl", "rollout_rs=seq_mean_k1"], "rollout_rs needs rollout_rs_threshold"),
        (["verl", "rollout_rs=geometric"], "rollout_rs must be one of token_k1"),
        (["verl", "rollout_rs=token_k3", "rollout_rs_threshold=1_2"], "is one number"),
        (
            ["verl", "rollout_rs=token_k1", "rollout_rs_threshold=0.5"],
            "1/0.5 as lower bound",
        ),
        (
            ["verl", "rollout_rs=token_k1", "rollout_rs_threshold=2,3"],
            "must be one, or one",
        ),
        (["trl", "vllm_importance_sampling_clip_min=4"], "must be below"),
        (["trl", "loss_type=vespo"], "needs vllm_importance_sampling_mode token_truncate"),
        (["trl", "epsilon=inf"], "epsilon must be a number, 0 or more, not 'inf'"),
        (["slime", "--use-tis", "--use-rollout-logprobs"], "count p_old/mu twice"),
        (["slime", "--tis-clip", "x"], "tis_clip must be a number above 0, not 'x'"),
        (["slime", "--get-mismatch-metrics"], "needs custom_tis_function_path"),
        (["slime", "--custom-tis-function-path", "my.f"], "this command knows icepop"),
        (["slime", *MIS, "tis_level=geometric"], "tis_batch_normalize must be false with"),
        (["slime", *MIS, "rs_veto_threshold=1"], "rs_veto_threshold must be below 1"),
        (["slime", *MIS, "rs_lower_bound=3"], "rs_lower_bound must lie below"),
        (["trl", "--tokens", "0"], "tokens must be from 1 to 10^9, not 0"),
        (["verl", "rollout_is\x1b\n=1"], r"no flag 'rollout_is\x1b\n' of verl"),
        (["verl", "rollout_is=\x1b[31m"], r"not '\x1b[31m'"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(words, message):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("tinyrl explain: ")
    assert message in line
    assert line.isprintable()
    if "--tokens" not in words:
        with pytest.raises(FlagError):
            explain(words[0], words[1:])


def test_it_is_listed_and_explains_itself():
    listed = CliRunner().invoke(app, ["--help"]).output
    assert "explain" in listed
    assert "..." not in listed.split("Commands:")[1]
    assert "--tokens" in run("--help")[1]


def test_what_was_typed_cannot_command_the_terminal():
    status, out, _ = run("trl", "use_vllm=true", "a.[red]\x1b[31m.loss_type=grpo")
    assert status == 0
    assert "\x1b[31m" not in out
    assert "[red]" in out


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo
    data.train_files=$HOME/x.parquet data.train_batch_size=1024
    actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.clip_ratio=0.2 actor_rollout_ref.actor.clip_ratio_c=10.0
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.rollout.n=5
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.temperature=0.7
    actor_rollout_ref.rollout.val_kwargs.temperature=0.1 critic.loss_agg_mode=what
    +algorithm.rollout_correction.rollout_is=sequence"""
SLIME = """--actor-num-nodes 2 --rollout-batch-size 32 --eps-clip 0.2 --eps-clip-c 3
    --colocate --rollout-stop-token-ids 1 2 3 --use-tis --tis-clip 3.0 --use-kl-loss
    --custom-generate-function-path a.b.generate --rollout-top-p 0.9"""


def test_a_whole_config_is_read_for_what_is_known():
    reading = explain("verl", VERL.split())
    assert reading.correction == explain("verl", ["rollout_is=sequence"]).correction
    assert "temperature=0.7 is no mismatch" in " ".join(x.en for x in reading.traps)
    for name in ("python3", "data.train_files", "critic.loss_agg_mode"):
        assert name in reading.unread
    assert "actor_rollout_ref.rollout.val_kwargs.temperature" in reading.unread
    assert not [name for name in reading.unread if name.endswith("rollout_is")]
    reading = explain("slime", SLIME.split())
    assert reading.correction.upper == 3.0
    assert "--rollout-stop-token-ids" in reading.unread
    assert not {"1", "2", "3", "32", "--use-tis"} & set(reading.unread)
    reading = explain("trl", ["num_generations=8", "num_iterations=2", "lr=1e-6"])
    assert reading.unread == ("num_generations", "lr")


def test_yaml_is_read_too():
    words = ["rollout_is:", "sequence", "rollout_is_threshold:", "2.0", "lr:", "1e-6"]
    reading = explain("verl", words)
    assert reading.correction.upper == 2.0
    assert reading.unread == ("lr",)


@pytest.mark.parametrize(("lang", "head"), [("en", "not read here"), ("zh", "此处不解读")])
def test_what_is_not_read_is_listed(lang, head):
    status, out, err = run("verl", *VERL.split(), "--lang", lang)
    assert (status, err) == (0, "")
    assert f"{head} " in out
    unread = "".join(out.split(head)[1].split())
    assert "data.train_files" in unread
    assert "rollout.temperature" not in unread


@pytest.mark.parametrize(
    ("framework", "flag", "near"),
    [
        ("verl", "algorithm.rollout_correction.rollout_iz=token", "rollout_is"),
        ("verl", "rollout.temprature=0.7", "temperature"),
        (
            "trl",
            "--vllm_importance_sampling_clipmax=3",
            "vllm_importance_sampling_clip_max",
        ),
        ("slime", "--tis-clipp", "tis_clip"),
    ],
)
def test_a_known_name_misspelt_is_refused(framework, flag, near):
    status, out, err = run(framework, flag, "lr=1")
    assert (status, out) == (2, "")
    assert f"near it: {near}" in err
