"""The `tinyrl` command. Each command imports its work inside, so that `--help` is quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tinyrl.course.streams import make_readable

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
labs = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(labs, name="lab", help="Check and repair your copy of a lab.")

exports = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(exports, name="export", help="Take the interview's questions elsewhere.")

Lab = Annotated[
    Path,
    typer.Argument(metavar="LAB", help="A lab's name or number, its notebook or folder."),
]
Lang = Annotated[
    str | None,
    typer.Option(metavar="en|zh", help="Language; TINYRL_LANG sets it for good."),
]
Rollout = Annotated[
    Path,
    typer.Argument(
        metavar="ROLLOUT",
        help="A .npy, .npz or .pt file, [sequence, token]: the engine's logprobs.",
    ),
]
Train = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="The trainer's logprobs of the same tokens.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tinyrl {version('tinyrl')}")
        raise typer.Exit


def _speak(lang: str | None) -> None:
    """Use the language that was asked for, for the rest of the process."""
    from tinyrl.course.words import set_language

    try:
        if lang is not None:
            set_language(lang)  # type: ignore[arg-type]  # it refuses any other
    except ValueError:
        raise typer.BadParameter(f"--lang: {lang!r} is neither en nor zh") from None


@app.callback()
def tinyrl(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Training-inference mismatch in LLM reinforcement learning: a course and its tools."""


@app.command()
def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="NOTEBOOK",
            help="Notebooks (.ipynb, or .py:percent) or folders of them.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where the executed notebooks go, as HTML."),
    ] = Path("artifacts/html"),
    timeout: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="That one notebook may take."),
    ] = 600,
) -> None:
    """Execute notebooks in a real kernel. Without a name: all of notebooks/."""
    from tinyrl.course import execute

    paths = [Path("notebooks")] if notebooks is None else notebooks
    raise typer.Exit(execute.run(paths, output=output, timeout=timeout))


@labs.command("check")
def lab_check(lab: Lab, lang: Lang = None) -> None:
    """Grade a lab here and now; exit 1 below full marks."""
    from tinyrl.course.classroom import labcheck

    _speak(lang)
    raise typer.Exit(labcheck.run(lab))


@labs.command("doctor")
def lab_doctor(
    lab: Lab,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be repaired.")
    ] = False,
    lang: Lang = None,
) -> None:
    """Find what silently costs marks, and repair it.

    Copied, moved, stripped or converted cells, edited tests, a wrong kernel ...
    """
    from tinyrl.course.classroom import doctor

    _speak(lang)
    raise typer.Exit(doctor.run(lab, fix))


@app.command()
def diagnose(
    rollout: Rollout,
    train: Train,
    mask: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same shape, true on real response tokens."),
    ] = None,
    lang: Lang = None,
) -> None:
    """Say how far two policies' logprobs are apart, and why."""
    from tinyrl.course.words import language
    from tinyrl.diagnosis import command

    _speak(lang)
    raise typer.Exit(command.run(rollout, train, mask, language()))


@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    framework: Annotated[
        str, typer.Argument(metavar="FRAMEWORK", help="verl, trl or slime.")
    ],
    flags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FLAG",
            help="As one writes them there: rollout_is=sequence, --use-tis, --tis-clip 2.",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(metavar="T", help="Response length of the examples.")
    ] = 1000,
    lang: Lang = None,
) -> None:
    """Say what a framework's flags do to the loss, and their traps."""
    from tinyrl.course.words import language
    from tinyrl.explain import command

    _speak(lang)
    raise typer.Exit(command.run(framework, flags or [], tokens, language()))


Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="I..VIII",
        help="Only this group of questions; several times for several.",
    ),
]


@app.command()
def drill(
    group: Groups = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="open|choice|numeric",
            help="Only cards of this kind; several times for several.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, metavar="CARDS", help="At most so many cards.")
    ] = 10,
    ahead: Annotated[bool, typer.Option("--ahead", help="Cards not due yet, too.")] = False,
    lang: Lang = None,
) -> None:
    """Drill the interview: cards that are due, then new ones.

    Open questions are answered aloud, against a clock, and rated against their rubric.
    What was missed comes once more in the same sitting.
    """
    import random

    from tinyrl.course.interview import drill_command
    from tinyrl.course.interview.arguments import groups, kinds

    _speak(lang)
    raise typer.Exit(
        drill_command.run(groups(group), kinds(kind), count, random.Random(), ahead=ahead)
    )


@app.command()
def mock(
    minutes: Annotated[
        float,
        typer.Option(
            min=4, max=180, metavar="MINUTES", help="How long the interview takes."
        ),
    ] = 45,
    lang: Lang = None,
) -> None:
    """A mock interview, then a report of what to read again.

    Open questions, answered aloud, numeric ones, and faults to be found by their traces.
    """
    import random

    from tinyrl.course.interview import mock

    _speak(lang)
    raise typer.Exit(mock.run(minutes, random.Random()))


@exports.command("anki")
def export_anki(
    deck: Annotated[
        Path, typer.Argument(metavar="FILE", help="The deck to write, *.apkg.")
    ] = Path("tinyrl.apkg"),
    lang: Lang = None,
) -> None:
    """The 70 questions and the numeric drills as an Anki deck, with pictures."""
    from tinyrl.course.interview import anki

    _speak(lang)
    raise typer.Exit(anki.run(deck))


def main() -> None:
    """Run the command line; a missing extra is said in one line."""
    make_readable()
    try:
        app()
    except ModuleNotFoundError as error:
        if (error.name or "tinyrl").partition(".")[0] == "tinyrl":
            raise
        typer.echo(
            f"This command needs {error.name}, which is not installed. In the folder of"
            " the course, run `make lab`, or: python -m pip install -e '.[lab]'",
            err=True,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
