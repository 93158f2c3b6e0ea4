"""Markdown as HTML, for cards and panels; issues and papers it cites become links."""

from __future__ import annotations

from markdown_it import MarkdownIt

from tinyrl.course.citations import linked_markdown

_MARKDOWN = MarkdownIt("commonmark", {"html": False})


def html(text: str) -> str:
    """Markdown as HTML; tags in it are shown, not obeyed."""
    return str(_MARKDOWN.render(linked_markdown(text)))
