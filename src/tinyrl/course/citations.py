"""Public issues cited in words as `trl#4159`, and papers by arXiv id, as links to read."""

from __future__ import annotations

import re
from html import escape

REPOSITORIES = {
    "Fast-LLM": "ServiceNow/Fast-LLM",
    "LightRFT": "opendilab/LightRFT",
    "Megatron-Bridge": "NVIDIA-NeMo/Megatron-Bridge",
    "Megatron-LM": "NVIDIA/Megatron-LM",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "RLinf": "RLinf/RLinf",
    "SkyRL": "NovaSky-AI/SkyRL",
    "TransformerEngine": "NVIDIA/TransformerEngine",
    "batch_invariant_ops": "thinking-machines-lab/batch_invariant_ops",
    "ethos-ares": "ipolharvard/ethos-ares",
    "genlm-backend": "genlm/genlm-backend",
    "maxtext": "AI-Hypercomputer/maxtext",
    "miles": "radixark/miles",
    "miles_diffusion": "radixark/miles_diffusion",
    "ml_dtypes": "jax-ml/ml_dtypes",
    "olmo-cookbook": "allenai/olmo-cookbook",
    "open-instruct": "allenai/open-instruct",
    "prime-rl": "PrimeIntellect-ai/prime-rl",
    "rllm": "rllm-org/rllm",
    "sglang": "sgl-project/sglang",
    "slime": "THUDM/slime",
    "transformers": "huggingface/transformers",
    "trl": "huggingface/trl",
    "verl": "verl-project/verl",
    "vime": "vllm-project/vime",
    "vllm": "vllm-project/vllm",
}
"""Where each name's issues are; GitHub leads from an issue's address to a pull request."""
CITATION = re.compile(r"([A-Za-z_-]+)#(\d+)", re.ASCII)


def linked(text: str) -> str:
    """A text as HTML in which each citation is a link."""

    def link(found: re.Match[str]) -> str:
        page = f"https://github.com/{REPOSITORIES[found[1]]}/issues/{found[2]}"
        return f'<a href="{page}" target="_blank" rel="noopener">{found[0]}</a>'

    return CITATION.sub(link, escape(text))


CITED = re.compile(
    r"`[^`]*`|\$[^$]*\$|\[[^]]*\]\([^)]*\)|https?://\S+"  # these stay as they are
    r"|(?P<issue>(?P<name>[A-Za-z_-]+)#(?P<number>\d+))"
    r"|(?P<paper>(?:arXiv )?(?P<id>(?:1[5-9]|2\d)(?:0[1-9]|1[0-2])\.\d{5}"
    r"|(?:0[7-9]|1[0-4])(?:0[1-9]|1[0-2])\.\d{4}))\b",
    re.ASCII,
)


def linked_markdown(text: str) -> str:
    """Markdown in which each citation is a link; code, formulas and links stay."""

    def link(found: re.Match[str]) -> str:
        if found["name"] in REPOSITORIES:
            page = f"{REPOSITORIES[found['name']]}/issues/{found['number']}"
            return f"[{found['issue']}](https://github.com/{page})"
        if found["paper"]:
            return f"[{found['paper']}](https://arxiv.org/abs/{found['id']})"
        return found[0]

    return CITED.sub(link, text)
