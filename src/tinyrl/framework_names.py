"""What frameworks call the numbers of `measures`, and where one name means two things.

Read in the frameworks' sources in August 2026. `same` holds for what the code computes, not
for what its documentation says of it, up to averages over processes and to float32: theirs
of exp(d) - 1 - d is rounding noise below about 1e-7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Of = Literal["mismatch", "staleness", "both"]
"""Which ratio, as in `monitoring.apart`: p_old / mu, p_new / p_old or p_new / mu."""


class Name(NamedTuple):
    theirs: str
    ours: str | None
    """A number of `measures`; None where we have no such one."""
    same: bool = True
    """Equal to ours. If not, `note` says what it is."""
    note: str = ""
    of: Of = "mismatch"


@dataclass(frozen=True)
class Framework:
    version: str
    date: str
    """Of the commit that was read."""
    files: tuple[str, ...]
    names: tuple[Name, ...]


APPLIED = "of the weights that are applied, after the cut, not of the ratios"
RESPONSES = "mean over responses of the mean over a response's tokens"
FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(
        "0.9.0",
        "2026-08-14",
        (
            "verl/trainer/ppo/rollout_corr_helper.py",
            "verl/utils/debug/metrics.py",
            "verl/trainer/ppo/core_algos.py",
        ),
        (
            Name("rollout_corr/kl", "k1"),
            Name("rollout_corr/k3_kl", "k3"),
            Name("rollout_corr/training_ppl", "train_ppl"),
            Name("rollout_corr/training_log_ppl", "train_log_ppl"),
            Name("rollout_corr/rollout_ppl", "rollout_ppl"),
            Name("rollout_corr/rollout_log_ppl", "rollout_log_ppl"),
            Name("rollout_corr/log_ppl_diff", "log_ppl_diff"),
            Name("rollout_corr/log_ppl_abs_diff", "seq_per_token"),
            Name("rollout_corr/log_ppl_diff_max", "log_ppl_diff_max"),
            Name("rollout_corr/log_ppl_diff_min", "log_ppl_diff_min"),
            Name("rollout_corr/ppl_ratio", "ppl_ratio"),
            Name("rollout_corr/chi2_token", "chi2"),
            Name("rollout_corr/chi2_seq", "chi2_seq", note="Delta is cut at +-20"),
            Name(
                "rollout_corr/rollout_is_mean",
                "ratio_mean",
                False,
                f"{APPLIED} (up to 0.7.1 of the ratios)",
            ),
            Name("rollout_corr/rollout_is_std", "ratio_std", False, APPLIED),
            Name(
                "rollout_corr/rollout_is_eff_sample_size",
                "ess",
                False,
                f"{APPLIED} (up to 0.7.1 cut from below too, at 1 / C)",
            ),
            Name(
                "rollout_corr/rollout_is_max",
                "ratio_max",
                False,
                "at token level of the applied weights, at sequence level of the products",
            ),
            Name(
                "rollout_corr/rollout_is_ratio_fraction_high",
                "above",
                note="of tokens or of responses, by level",
            ),
            Name(
                "rollout_corr/rollout_is_ratio_fraction_low",
                "below",
                False,
                "below 1 / C, where truncation does nothing",
            ),
            Name(
                "rollout_corr/rollout_is_seq_mean",
                None,
                False,
                f"{RESPONSES} of applied weights: no product over tokens at token level",
            ),
            Name("rollout_corr/rollout_rs_masked_fraction", "dropped"),
            Name(
                "rollout_corr/rollout_rs_seq_masked_fraction",
                "dropped_some",
                note="one rejected token counts the response",
            ),
            Name("training/rollout_probs_diff_mean", "prob_gap"),
            Name("training/rollout_probs_diff_max", "prob_gap_max"),
            Name("training/rollout_probs_diff_std", "prob_gap_std"),
            Name("training/rollout_actor_probs_pearson_corr", "prob_corr"),
            Name("actor/ppo_kl", "k1", of="staleness", note="in bypass mode of p_new / mu"),
        ),
    ),
    "TRL": Framework(
        "1.10.0.dev0",
        "2026-07-24",
        (
            "trl/trainer/grpo_trainer.py",
            "trl/experimental/async_grpo/async_grpo_trainer.py",
        ),
        (
            Name("sampling/sampling_logp_difference/mean", "mean_abs"),
            Name("sampling/sampling_logp_difference/max", "max_abs"),
            Name(
                "sampling/importance_sampling_ratio/mean",
                "ratio_mean",
                False,
                f"{APPLIED}, 0 where masked; in sequence modes products, one a response",
            ),
            Name("sampling/importance_sampling_ratio/max", "ratio_max", False, APPLIED),
            Name("sampling/importance_sampling_ratio/min", "ratio_min", False, APPLIED),
            Name("kl", None, False, "K3 to the reference model: the penalty"),
            Name("kl (async GRPO)", "k3", of="both", note="no reference model in it"),
        ),
    ),
    "slime": Framework(
        "0.3.1",
        "2026-08-21",
        (
            "examples/train_infer_mismatch_helper/mis.py",
            "slime/backends/megatron_utils/loss.py",
        ),
        (
            Name("mis_kl", "log_ppl_diff", note=f"{RESPONSES}, as all of slime's"),
            Name("mis_k3_kl", "k3", False, RESPONSES),
            Name("mis_training_ppl", "train_ppl"),
            Name("mis_training_log_ppl", "train_log_ppl"),
            Name("mis_rollout_ppl", "rollout_ppl"),
            Name("mis_rollout_log_ppl", "rollout_log_ppl"),
            Name("mis_log_ppl_diff", "log_ppl_diff"),
            Name("mis_log_ppl_abs_diff", "seq_per_token"),
            Name("mis_ppl_ratio", "ppl_ratio"),
            Name("mis_chi2_token", "chi2", False, RESPONSES),
            Name("mis_chi2_seq", "chi2_seq", note="Delta is cut at +-20"),
            Name("tis", "ratio_mean", False, f"{RESPONSES} of rho before the cut"),
            Name("tis_abs", None, False, f"{RESPONSES} of |rho - 1|"),
            Name("tis_clipfrac", "above", False, f"{RESPONSES}; what is below counts too"),
            Name("ois", "ratio_mean", False, RESPONSES, "staleness"),
            Name("train_rollout_logprob_abs_diff", "mean_abs", False, RESPONSES),
            Name("ppo_kl", "k1", False, RESPONSES, "staleness"),
        ),
    ),
    "prime-rl": Framework(
        "0.8.0",
        "2026-08-21",
        ("src/prime_rl/trainer/rl/loss.py", "src/prime_rl/trainer/rl/train.py"),
        (
            Name("mismatch_kl/all/mean", "k3", note="staleness is in it", of="both"),
            Name("unmasked_mismatch_kl", None, False, "K3 of the tokens kept", "both"),
            Name(
                "is_masked",
                "dropped",
                note="masked on p_new - mu, and only against the advantage's sign",
                of="both",
            ),
            Name("kl_ent_ratio/mean", None, False, "K3 over entropy, which needs logits"),
        ),
    ),
    "AReaL": Framework(
        "1.0.4",
        "2026-05-21",
        ("areal/utils/functional/functional.py", "areal/utils/data.py"),
        (
            Name("behave_approx_kl", "mean", False, "-K1, over kept tokens: mean of d"),
            Name("behave_imp_weight", "ratio_mean", False, f"{APPLIED}, over kept tokens"),
            Name("rs_filtered_fraction", "dropped", note="if it masks; clamped ones else"),
            Name("approx_kl", "mean", of="staleness", note="-K1"),
            Name("importance_weight", "ratio_mean", of="staleness"),
        ),
    ),
    "OpenRLHF": Framework(
        "0.11.0",
        "2026-08-13",
        ("openrlhf/models/loss.py",),
        (
            Name("vllm_kl", "k1"),
            Name("ppo_kl", "k1", of="staleness"),
        ),
    ),
    "ms-swift": Framework(
        "4.6.0.dev0",
        "2026-08-22",
        ("swift/rlhf_trainers/grpo_trainer.py",),
        (
            Name("rollout_correction/kl", "k1"),
            Name("rollout_correction/k3_kl", "k3", False, "each token's is cut at 10"),
            Name("rollout_correction/training_ppl", "train_ppl"),
            Name("rollout_correction/training_log_ppl", "train_log_ppl"),
            Name("rollout_correction/rollout_ppl", "rollout_ppl"),
            Name("rollout_correction/rollout_log_ppl", "rollout_log_ppl"),
            Name("rollout_correction/log_ppl_diff", "log_ppl_diff"),
            Name("rollout_correction/log_ppl_abs_diff", "seq_per_token"),
            Name("rollout_correction/log_ppl_diff_max", "log_ppl_diff_max"),
            Name("rollout_correction/log_ppl_diff_min", "log_ppl_diff_min"),
            Name("rollout_correction/ppl_ratio", "ppl_ratio"),
            Name("rollout_correction/chi2_token", "chi2"),
            Name(
                "rollout_correction/chi2_seq",
                "chi2_geometric",
                note="its docstring has the product",
            ),
            Name(
                "rollout_correction/ess",
                "ess",
                False,
                f"{APPLIED}, cut to 1 / C .. C: a masked token counts as 1 / C",
            ),
            Name("rollout_correction/is_weight_mean", "ratio_mean", False, APPLIED),
            Name("rollout_correction/clipped_frac", "above", note="sequence is geometric"),
        ),
    ),
    "NeMo-RL": Framework(
        "0.6.0",
        "2026-08-22",
        ("nemo_rl/algorithms/loss/loss_functions.py", "nemo_rl/algorithms/utils.py"),
        (
            Name("token_mult_prob_error", "error_factor"),
            Name("gen_kl_error", "k3", note="with reference_policy_kl_type k3"),
            Name("policy_kl_error", "k3_reverse", note="as gen_kl_error"),
            Name(
                "js_divergence_error",
                "log_cosh",
                note="their example, 9 in the text, has 4.3 by this code",
            ),
            Name(
                "sampling_importance_ratio",
                "ratio_mean",
                False,
                f"{APPLIED}; equal to ours where nothing is cut",
            ),
            Name("is_oob_ratio", None, False, "below and above together"),
        ),
    ),
    "Tinker": Framework(
        "cookbook",
        "2026-08-19",
        ("tinker_cookbook/rl/metrics.py",),
        (
            Name("optim/kl_sample_train_v1", "k1"),
            Name("optim/kl_sample_train_v2", "k2"),
            Name("optim/entropy", None, False, "mean over tokens of -logp_rollout"),
        ),
    ),
}

TWO_MEANINGS: dict[str, str] = {
    "kl": "k1 of p_old / mu in verl and ms-swift; in slime (mis_kl) the same by "
    "response; in TRL K3 to the reference model, but in its async trainer K3 of p_new "
    "/ mu",
    "k3": "with x ~ mu, rho - 1 - d is unbiased for KL(mu || train) (verl, NeMo-RL's "
    "gen_kl_error, prime-rl); 1 / rho - 1 + d is not for KL(train || mu), and one "
    "token can decide it (NeMo-RL's policy_kl_error, AReaL's filter kl_k3)",
    "approx_kl": "K1 with its sign turned in AReaL (mean of log p_new - log p_old); "
    "elsewhere (ppo_kl of verl, slime and OpenRLHF) mean of log p_old - log p_new",
    "mismatch_kl": "p_new / mu in prime-rl, so staleness is in it; slime's README "
    "calls its mis_kl so, of p_old / mu",
    "chi2_seq": "of the product of ratios in verl and slime, of their geometric mean "
    "in ms-swift: exp(2 Delta) against exp(2 Delta / T)",
    "mean weight": "before the cut (slime tis, verl up to 0.7.1) or "
    "after it (verl since 0.8.0, TRL, ms-swift), where it cannot exceed the cut",
    "ess": "of the ratios themselves here; of weights cut at C in verl; cut to 1 / C "
    ".. C in ms-swift and in verl up to 0.7.1, which hides small weights",
    "ppl_ratio": "mean over responses of the ratio, nowhere the ratio of the two "
    "perplexities beside it",
    "clip fraction": "tokens where PPO's clip decides the loss (verl, TRL, OpenRLHF), "
    "ratios beyond a correction's bounds (slime tis_clipfrac, ms-swift), or here all "
    "ratios outside 1 +- clip",
    "mean": "over all tokens (verl, OpenRLHF, NeMo-RL, Tinker, prime-rl) or over "
    "responses of their own means (slime), which weighs short responses more",
}
"""By word: what it means, and where."""


def translate(
    framework: str, numbers: Mapping[str, float], of: Of = "mismatch"
) -> dict[str, float]:
    """Those of a framework's numbers that equal ours, by its names.

    `numbers` are of one ratio, `of`; see `monitoring.apart`.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"framework must be one of {', '.join(FRAMEWORKS)}")
    return {
        name.theirs: numbers[name.ours]
        for name in FRAMEWORKS[framework].names
        if name.same and name.of == of and name.ours is not None and name.ours in numbers
    }
