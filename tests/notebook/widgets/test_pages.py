"""Widgets on the pages of notebooks: keys that are pressed in them are theirs, and they can be read in every theme."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Board, Card
from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.render import still
from ddpnb.rules.diagnose import diagnose as diagnosed
from ddpnb.world.loading import load
from tests.notebook.widgets.standin import page_in, show
from tests.notebook.widgets.test_lanes_js import hang
from tests.rules.recordings import diagnose

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

LOG = Path(__file__).parents[3] / "notebooks" / "reports" / "torchrun.log"
FORM = (
    '<form data-action="run"><input aria-label="script" name="script"><select aria-label="one"><option>1</select>'
    '<button type="button" data-action="stop" data-n="{n}">stop</button></form><details open><summary>more</summary></details>'
)
#: as Notebook 7 does: before the widget hears of it, and by what has the focus
LISTEN = """
window.taken = [];
document.addEventListener("keydown", ({ key, target }) => target.hasAttribute("data-lm-suppress-shortcuts") || taken.push(`early ${key}`), true);
document.addEventListener("keydown", ({ key }) => taken.push(`late ${key}`));
"""
#: body classes, and surfaces of its default themes
VSCODE = {
    "vscode-dark": ("vscode-dark", "#1f1f1f", "#cccccc", "#202020"),
    "vscode-light": ("vscode-light", "#ffffff", "#3b3b3b", "#f8f8f8"),
    "vscode-high-contrast": ("vscode-high-contrast", "#000000", "#ffffff", "#0c141f"),
    "vscode-high-contrast-light": ("vscode-high-contrast vscode-high-contrast-light", "#ffffff", "#292929", "#ffffff"),
}


def test_keys_that_are_pressed_in_a_part_are_not_the_notebooks(chromium):
    with page_in(chromium) as page:
        show(page, Fragment(FORM.format(n=1), title="Part", folds=True, unfolded=1))
        page.evaluate(LISTEN)
        for one in page.locator(".ddpnb :is(input, select, button, summary)").all():
            one.focus()
            page.keyboard.press("d")
            page.evaluate("html => model.set('html', html)", FORM.format(n=2))  # news: what has the focus keeps it
            page.keyboard.press("d")
        assert page.get_by_label("script").input_value() == "dd"
        assert page.evaluate("taken") == []
        page.get_by_role("button", name="stop").click()
        assert page.evaluate("sent.at(-1)") == {"action": "stop", "values": {"n": "2", "script": "dd"}}


def test_keys_that_are_pressed_in_the_time_line_are_not_the_notebooks(chromium):
    with page_in(chromium) as page:
        show(page, Timeline(hang()))
        page.evaluate(LISTEN)
        for one in page.locator(".ddpnb :is(button:visible, canvas)").all():
            one.focus()
            page.keyboard.press("d")
        assert page.evaluate("taken") == []


@pytest.mark.parametrize(
    "theme",
    [
        "vscode-dark",
        "vscode-high-contrast-light",
        *(pytest.param(one, marks=pytest.mark.full) for one in ("vscode-light", "vscode-high-contrast")),
    ],
)
def test_they_can_be_read_where_vscode_paints_white_below_them(chromium, theme):
    """VS Code's widgets also know JupyterLab's names, and always mean a light page."""
    classes, ground, ink, raised = VSCODE[theme]
    found = diagnose(hang())
    with page_in(chromium) as page:
        for widget in (
            Card(found),
            Board(hang(), found),
            Timeline(hang(), found),
            Fragment(FORM.format(n=1), title="Part"),
        ):
            show(page, widget)
            page.evaluate(
                "([classes, kind]) => { document.body.className = classes; document.body.dataset.vscodeThemeKind = kind }",
                [classes, theme],
            )
            page.add_style_tag(content=(
                f":root {{ --jp-ui-font-color1: rgba(0, 0, 0, 0.8); --jp-layout-color1: white; --vscode-editor-background: {ground};"
                f" --vscode-editor-foreground: {ink}; --vscode-editorWidget-background: {raised} }}"
                "body { background: var(--vscode-editor-background) } #root { background: white !important }"
            ))  # fmt: skip
            read = Axe().run(page, options={"runOnly": ["color-contrast"]})
            assert not read.response["violations"], read.generate_report()


def test_a_page_to_share_can_be_read_in_both_themes_and_is_not_wider_than_a_phone(chromium):
    log = load(str(LOG))
    with page_in(chromium, color_scheme="dark") as page:
        page.set_viewport_size({"width": 400, "height": 800})
        page.set_content(still.page(log, diagnosed(log)))
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert not (found := Axe().run(page)).response["violations"], found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        words = page.locator("body").inner_text()
        assert "rank 1: its stack is not known" in words and "0.0 s" not in words  # a log is read once
