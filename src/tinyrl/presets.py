"""What frameworks call their corrections, as ours: read from their source, with the date.

`PRESETS["verl/decoupled_seq_is"].correction` is what verl's method of that name does. Names
after the slash are the framework's own: for verl the methods of RolloutCorrectionConfig,
else the value or file that turns it on; "default" is what happens if no flag is given.
Defaults move: each entry holds for the commit that it names. IcePop is
verl/decoupled_token_icepop, Geo-RS is verl/decoupled_geo_rs.

Not here, for no `Correction` says it: rejection by K2 or K3 (verl's decoupled_k3_rs,
decoupled_k3_rs_seq_tis, decoupled_k3_rs_token_tis and bypass_ppo_clip_k3_rs), by a
difference of probabilities (prime-rl), or of a response by one token far above (SkyRL).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .correction import Correction, Denominator, Mode
from .objectives import Level

Loss = Literal["clipped", "reinforce"]


@dataclass(frozen=True)
class Release:
    """A state of a repository on GitHub: the one that was read."""

    repository: str
    version: str
    commit: str
    date: str
    """Of that commit."""


@dataclass(frozen=True)
class Preset:
    """A framework's recipe: the flags as its users write them, and the same as ours."""

    name: str
    """framework/theirs"""
    release: Release
    source: str
    """The file that was read, and where in it."""
    flags: str
    correction: Correction
    mode: Mode = "decoupled"
    loss: Loss = "clipped"
    """With "reinforce" the weight is p_new / mu itself: -w A log p_new, nothing clipped."""
    note: str = ""

    @property
    def framework(self) -> str:
        """Whose it is, in lower case."""
        return self.name.partition("/")[0]

    @property
    def anchor(self) -> Literal["recompute", "rollout"]:
        """Whose probability is the loss's old one: `LossView(anchor=preset.anchor)`."""
        return "recompute" if self.mode == "decoupled" else "rollout"


VERL = Release(
    "verl-project/verl", "v0.9.0", "483b8a009ba3a97563edee3a19887e4862b8094a", "2026-08-14"
)
TRL = Release(
    "huggingface/trl", "v1.9.0", "35def3ee000a87f6839e66f4b7749b06274ed1b3", "2026-07-21"
)
SLIME = Release(
    "THUDM/slime", "v0.3.1", "a6272da0d4f3d0a08520c99a2f3b4f6c887960dc", "2026-08-06"
)
OPENRLHF = Release(
    "OpenRLHF/OpenRLHF", "v0.11.0", "3c3be6234e0cb353e76bb8019947db9dfe99fca7", "2026-08-13"
)
NEMO = Release(
    "NVIDIA-NeMo/RL", "v0.7.0", "81aa43dda4765b0429cf31dab44441e4e4383911", "2026-07-29"
)
AREAL = Release(
    "inclusionAI/AReaL", "v1.0.4", "37d6c6400e99a05fa3409d6a067762a44df40d3b", "2026-05-07"
)
SKYRL = Release(
    "NovaSky-AI/SkyRL", "main", "a9564572eb8e91076be43c1bd5e4615e3de17265", "2026-08-21"
)
SWIFT = Release(
    "modelscope/ms-swift",
    "v4.5.2",
    "ff5128777dd3dc5538f1a95fbcc29442c327d7d2",
    "2026-08-16",
)


def truncate(
    level: Level,
    upper: float,
    denominator: Denominator = "kept",
    also: Correction | None = None,
) -> Correction:
    """Weights up to `upper`."""
    return Correction(level, "truncate", None, upper, denominator=denominator, also=also)


def reject(
    level: Level,
    lower: float | None,
    upper: float | None,
    denominator: Denominator = "all",
    veto: float | None = None,
) -> Correction:
    """A mask that weighs nothing: rejection sampling."""
    return Correction(
        level, "mask", lower, upper, weight="one", denominator=denominator, veto=veto
    )


def _verl() -> list[Preset]:
    """Rejections edit response_mask, in decoupled mode before its tokens are counted, in
    bypass after. Their bounds are upside down (K1 is -log rho): 0.999_1.001 keeps rho from
    1/1.001 to 1/0.999. IcePop sets weights to 0 and leaves the mask alone."""

    def preset(
        name: str, flags: str, correction: Correction, loss: Loss | None = None
    ) -> Preset:
        where = f"algorithm.py, RolloutCorrectionConfig.{name}"
        if name == "default":
            where = "algorithm/rollout_correction.yaml"
        if loss:
            kind = "ppo_clip" if loss == "clipped" else loss
            flags = f"bypass_mode=true loss_type={kind} {flags}".strip()
        mode: Mode = "bypass" if loss else "decoupled"
        source = f"verl/trainer/config/{where}; verl/trainer/ppo/rollout_corr_helper.py"
        return Preset(
            f"verl/{name}", VERL, source, flags, correction, mode, loss or "clipped"
        )

    token, product = "rollout_is=token", "rollout_is=sequence"
    geometric = "rollout_rs=seq_mean_k1 rollout_rs_threshold=0.999_1.001"
    cap, band = "rollout_is_threshold=2.0", "rollout_is_threshold=0.5_5.0"
    within = "rollout_rs=seq_sum_k1 rollout_rs_threshold=0.5_2.0"
    pop = Correction("token", "mask", 0.5, 5.0, denominator="all")
    geo = reject("geometric", 1 / 1.001, 1 / 0.999, "kept")
    late = reject("geometric", 1 / 1.001, 1 / 0.999, "all")
    both = truncate("sequence", 2.0, also=reject("sequence", 0.5, 2.0, "kept"))
    seq, tok = f"{product} {cap}", f"{token} {cap}"
    seq_late, tok_late = (truncate(x, 2.0, "all", late) for x in ("sequence", "token"))
    return [
        preset("default", "", Correction()),
        preset("decoupled_token_is", tok, truncate("token", 2.0)),
        preset("decoupled_seq_is", seq, truncate("sequence", 2.0)),
        preset("decoupled_token_icepop", f"{token} {band}", pop),
        preset("decoupled_seq_is_rs", f"{seq} {within}", both),
        preset("decoupled_geo_rs", geometric, geo),
        preset(
            "decoupled_geo_rs_seq_tis",
            f"{seq} {geometric}",
            truncate("sequence", 2.0, also=geo),
        ),
        preset(
            "decoupled_geo_rs_token_tis",
            f"{tok} {geometric}",
            truncate("token", 2.0, also=geo),
        ),
        preset("bypass_ppo_clip", "", Correction(), "clipped"),
        preset("bypass_ppo_clip_geo_rs", geometric, late, "clipped"),
        preset("bypass_pg_is", seq, truncate("sequence", 2.0), "reinforce"),
        preset("bypass_pg_token_icepop", f"{token} {band}", pop, "reinforce"),
        preset("bypass_pg_geo_rs", geometric, late, "reinforce"),
        preset("bypass_pg_geo_rs_seq_tis", f"{seq} {geometric}", seq_late, "reinforce"),
        preset("bypass_pg_geo_rs_token_tis", f"{tok} {geometric}", tok_late, "reinforce"),
    ]


def _trl() -> list[Preset]:
    """Bounds are the default ones, 3.0 and none. A mask sets the weight to 0 and leaves
    every denominator as it was."""
    source = "trl/trainer/grpo_config.py; trl/trainer/grpo_trainer.py"
    levels: tuple[Level, ...] = ("token", "sequence")
    masks = [Correction(x, "mask", None, 3.0, denominator="all") for x in levels]
    presets = [Preset("trl/default", TRL, source, "use_vllm=true", masks[1])]
    for level, mask in zip(levels, masks, strict=True):
        for does, correction in (("mask", mask), ("truncate", truncate(level, 3.0))):
            name = f"{level}_{does}"
            flags = f"use_vllm=true vllm_importance_sampling_mode={name}"
            presets.append(Preset(f"trl/{name}", TRL, source, flags, correction))
    return presets


def _slime() -> list[Preset]:
    """A mask narrows the sum of losses; the denominators stay those of all tokens."""
    arguments, loss = "slime/utils/arguments.py", "slime/backends/megatron_utils/loss.py"
    example = "examples/train_infer_mismatch_helper/mis"
    custom = "--use-tis --custom-tis-function-path"
    module = loss.removesuffix(".py").replace("/", ".")
    band = reject("token", 0.5, 2.0, veto=1e-4)
    mis = Correction(
        "token", "truncate", None, 2.0, normalise=True, denominator="all", also=band
    )
    return [
        Preset("slime/default", SLIME, arguments, "", Correction()),
        Preset(
            "slime/use_tis",
            SLIME,
            f"{loss}, vanilla_tis_function",
            "--use-tis",
            truncate("token", 2.0),
        ),
        Preset(
            "slime/icepop_function",
            SLIME,
            f"{loss}, icepop_function",
            f"{custom} {module}.icepop_function",
            Correction("token", "mask", None, 2.0, denominator="all"),
            note="No lower bound unless --tis-clip-low is given; IcePop has two.",
        ),
        Preset(
            "slime/mis.yaml",
            SLIME,
            f"{example}.yaml; {example}.py",
            f"{custom} {example.replace('/', '.')}.compute_mis_weights_with_cp",
            mis,
            note="The mean of the weights is over a micro-batch there.",
        ),
        Preset(
            "slime/use_rollout_logprobs",
            SLIME,
            arguments,
            "--use-rollout-logprobs",
            Correction(),
            "bypass",
        ),
    ]


def _others() -> list[Preset]:
    """Weights that they leave uncapped are capped at e^20 here. In all of these a dropped
    token counts in the denominator."""
    loss = "openrlhf/models/loss.py, PolicyLoss; openrlhf/cli/train_ppo_ray.py"
    on = "--algo.advantage.is_correction_enable --algo.advantage.is_correction_type"
    nemo, kind = (
        "nemo_rl/algorithms/loss/loss_functions.py; examples/configs",
        "use_importance_sampling_correction=true truncated_importance_sampling_type",
    )
    bounds = "truncated_importance_sampling_ratio{}={}"
    swift = "swift/rlhf_trainers/grpo_trainer.py, _apply_rollout_importance_sampling"
    mode = "rollout_importance_sampling_mode"
    clamp = Correction("token", "truncate", 0.5, 5.0)
    pop = Correction("token", "mask", 0.5, 5.0, denominator="all")

    def raw(mask: Correction) -> Correction:
        return truncate("token", math.inf, "all", mask)

    def between(low: float, high: float) -> str:
        return f"{bounds.format('_min', low)} {bounds.format('', high)}"

    return [
        Preset("openrlhf/tis", OPENRLHF, loss, f"{on} tis", clamp),
        Preset("openrlhf/icepop", OPENRLHF, loss, f"{on} icepop", pop),
        Preset(
            "openrlhf/seq-mask-tis",
            OPENRLHF,
            loss,
            f"{on} seq-mask-tis",
            raw(reject("geometric", 0.5, 5.0)),
        ),
        Preset(
            "nemo-rl/icepop",
            NEMO,
            f"{nemo}/prorlv2.v2.yaml",
            f"{kind}=icepop {between(0.5, 5.0)}",
            pop,
        ),
        Preset(
            "nemo-rl/seq-mask-tis",
            NEMO,
            f"{nemo}/prorlv2_1_moe.v2.yaml",
            f"{kind}=seq-mask-tis {between(0.999, 1.002)}",
            raw(reject("geometric", 0.999, 1.002)),
        ),
        Preset(
            "areal/rejection_sampling",
            AREAL,
            "areal/api/cli_args.py, RejectionSamplingConfig; areal/utils/functional",
            "use_decoupled_loss=true rejection_sampling.level=token",
            Correction("token", "mask", None, 5.0, denominator="all"),
            note="Its defaults once given; without the block nothing is filtered.",
        ),
        Preset(
            "skyrl/geometric",
            SKYRL,
            "skyrl/train/config/config.py, OffPolicyCorrectionConfig",
            "sequence_mask_metric=geometric",
            reject("geometric", 0.99, 1.01),
            note="Its guide puts this first, with token TIS at 2.0 beside it.",
        ),
        Preset(
            "ms-swift/sequence_truncate",
            SWIFT,
            swift,
            f"{mode}=sequence_truncate",
            truncate("geometric", 2.0),
            note="Sequence means the geometric mean here; the KL term is weighted, too.",
        ),
        Preset(
            "ms-swift/sequence_mask",
            SWIFT,
            swift,
            f"{mode}=sequence_mask",
            raw(reject("geometric", None, 2.0)),
            note="Masks by the geometric mean, weighs by token, uncapped; the KL, too.",
        ),
    ]


PRESETS: dict[str, Preset] = {
    preset.name: preset for preset in (*_verl(), *_trl(), *_slime(), *_others())
}
