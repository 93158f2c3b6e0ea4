"""The bit explorer in a real JupyterLab: a click on a bit shows another number."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from lab_server import BROWSER, ROOT
from lab_window import Lab
from tinyrl.course import notebooks

pytestmark = BROWSER


def test_a_click_flips_a_bit_and_an_error_is_shown(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nb = notebooks.read(ROOT / "notebooks/03_number_formats.ipynb")
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    explorer = next(c for c in code if "anchor:explorer" in c.metadata.get("tags", []))
    lab.open("notebooks", "03_number_formats.ipynb")
    for cell in (code[0], explorer):
        assert "error" not in {o["output_type"] for o in lab.run(cell.id)}
    sign = lab.front.get_by_title("sign 2^0: 0")
    expect(sign).to_have_count(1)
    lab.shoot("bit-explorer")
    sign.click()
    live = lab.front.locator("table[aria-live]")
    expect(live).to_contain_text("-0.0999755859")
    text = lab.front.get_by_label("number")
    text.fill("seventy")
    text.press("Enter")
    expect(lab.front.get_by_role("alert")).to_contain_text("is not a number")
    text.fill("70000")
    text.press("Enter")
    expect(live).to_contain_text("beyond the largest number")
    lab.shoot("bit-explorer-overflow")
