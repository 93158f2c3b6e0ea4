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
        (["verl", "zzzz=1"], "known: rollout_is, rollout_is_threshold"),
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
        (["slime", "-x"], "'-x' is no flag"),
        (["trl", "--tokens", "0"], "tokens must be from 1 to 10^9, not 0"),
        (["verl", "\x1b[31m\n=1"], r"no flag '\x1b[31m\n' of verl"),
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
