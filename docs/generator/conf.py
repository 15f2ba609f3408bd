"""The configuration of Sphinx."""

from __future__ import annotations

from pathlib import Path

import ddpnb
from docs.generator import docstrings, navigation

project = "ddpnb"
author = "the authors of ddpnb"
release = ddpnb.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "sphinx_copybutton"]

# -- Markdown
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # pages begin at any level: parts of the README and of notebooks do
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

# -- Python API
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
napoleon_use_rtype = False
napoleon_use_ivar = True
# Names of the project must be documented; those of others lie elsewhere, and some types of ours are only passed on.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!ddpnb\b).*"),
    (
        r"py:class",
        r"ddpnb\.(studies\.bisection\.search\.Rate|recorder\.process\.components\._Function|studies\.reenactment\.agreement\.Agreement"
        r"|recording\.verbs\.Evaluated|recording\.calls\.Site)",
    ),
]

# -- HTML
html_theme = "furo"
html_title = f"ddpnb {release}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


def setup(app: object) -> None:
    """Sphinx calls it."""
    docstrings.connect(app)
    navigation.connect(app)
