"""The palette: text can be read on every surface, and nothing is told by colour alone."""

from __future__ import annotations

import re

import pytest

from ddpnb.render import palette

LIGHT = {"white": "#ffffff", "raised": "#f3f5f7", "JupyterLab's raised": "#eeeeee"}
DARK = {"page": "#111418", "JupyterLab": "#212121", "raised": "#1c2127", "JupyterLab's raised": "#424242"}
TEXTS = {**palette.COLOURS, "faint": palette._FAINT, "fg": palette._SURFACES["fg"][1:]}


def luminance(colour):
    """Of a colour ``#rrggbb``, as WCAG 2 defines it."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_what_it_is_known_to_be():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("surface", LIGHT.values(), ids=LIGHT)
def test_text_can_be_read_on_light_pages(name, surface):
    assert contrast(TEXTS[name][0], surface) >= 4.5


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("surface", DARK.values(), ids=DARK)
def test_text_can_be_read_on_dark_pages(name, surface):
    assert contrast(TEXTS[name][1], surface) >= 4.5


def variables(rule):
    return dict(re.findall(r"(--ddpnb-\w+):([^;}]+)", rule))


def test_the_style_sheet_has_all_colours_for_light_pages_and_for_dark_ones():
    light, dark = palette.css().splitlines()
    assert light.startswith(".ddpnb{") and dark.startswith(palette.on_dark_pages(".ddpnb"))
    assert variables(light).keys() == variables(dark).keys()
    for role, (on_light, on_dark) in palette.COLOURS.items():
        assert (variables(light)[f"--ddpnb-{role}"], variables(dark)[f"--ddpnb-{role}"]) == (on_light, on_dark)


def test_surfaces_are_those_of_the_notebook_where_it_has_some():
    light, dark = palette.css().splitlines()
    assert variables(light)["--ddpnb-bg"] == "var(--vscode-editor-background,var(--jp-layout-color1,#ffffff))"
    assert variables(dark)["--ddpnb-bg"] == "var(--vscode-editor-background,var(--jp-layout-color1,#111418))"


def test_a_colour_that_is_only_drawn_is_never_written():
    from ddpnb.notebook.widgets.view import styles

    rules = re.findall(r"[{;]\s*color:\s*([^;}]+)", styles())
    assert rules and not [rule for rule in rules if "--ddpnb-busy" in rule]
