"""The page keeps what ddpnb renders, and drops everything else."""

from __future__ import annotations

import pytest

from ddpnb.notebook.widgets.view import module
from tests.notebook.widgets.standin import load, page_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

OURS = """<form data-action="run" class="row" style="width:40.5%;margin-top:8px"><label>script<input aria-label="script"
name="script" type="text" value="javascript:1" list="files"></label><input type="checkbox" checked disabled>
<select aria-label="one"><optgroup label="l"><option value="a" selected>a</option></optgroup></select>
<button type="button" data-n="1" title="t" tabindex="-1"><svg class="icon" viewBox="0 0 12 12" aria-hidden="true"><path
fill-rule="evenodd" d="M4 1h4z"></path></svg>go</button></form><details open data-key="k"><summary>more</summary><p>a &lt;b&gt;</p>
</details><a href="my%20code/train%20%231.py#line=9" target="_blank" rel="noopener"><code>x</code></a>
<img class="figure" alt="a figure" src="data:image/png;base64,iVBORw0KGgo="><table><thead><tr><th scope="col">a</th></tr>
</thead><tbody><tr><td colspan="2">b</td></tr></tbody></table><time data-age="1.00">1.0 s</time><progress max="2" value="1"></progress>"""
DROPPED = [
    "<script>alert(1)</script>",
    "<style>* { background: url(http://evil.example/) }</style>",
    "<iframe src='https://evil.example/'></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data='x'></object>",
    "<embed src='x'>",
    "<link rel=stylesheet href='https://evil.example/x.css'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href='https://evil.example/'>",
    "<video src='https://evil.example/'></video>",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "<template><script>alert(1)</script></template>",
    "<textarea autofocus onfocus=alert(1)></textarea>",
    "<unknown-element>text</unknown-element>",
]
ATTRIBUTES = {
    "<img src=x onerror=alert(1)>": "<img>",
    "<img src='https://evil.example/pixel.png'>": "<img>",
    "<img srcset='https://evil.example/pixel.png 1x'>": "<img>",
    "<img src='data:image/svg+xml,<svg onload=alert(1)>'>": "<img>",
    "<p onclick=alert(1) ONMOUSEOVER=alert(1)>x</p>": "<p>x</p>",
    "<p style='background:url(https://evil.example/)'>x</p>": "<p>x</p>",
    "<p style='background:\\75rl(//evil.example)'>x</p>": "<p>x</p>",
    "<input type=image src='https://evil.example/'>": "<input>",
    "<button type=submit formaction='javascript:alert(1)'>x</button>": "<button>x</button>",
    "<form action='https://evil.example/'>x</form>": "<form>x</form>",
    "<table background='https://evil.example/'></table>": "<table></table>",
    "<svg><script>alert(1)</script><animate href=#x></animate><path d=M1></path></svg>": '<svg><path d="M1"></path></svg>',
    "<svg><a xlink:href='javascript:alert(1)'>x</a></svg>": "<svg><a>x</a></svg>",
    "<svg><foreignObject><p onclick=alert(1)>x</p></foreignObject></svg>": "<svg></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>": "<svg></svg><img>",
}
ADDRESSES = [
    "javascript:alert(1)", " JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "\x01javascript:alert(1)", "vbscript:x",
    "data:text/html,<script>alert(1)</script>", "https://evil.example/", "//evil.example/", "\\\\evil.example\\",
    "/\\evil.example", "file:///etc/passwd", "blob:x", "http://[", "mailto:x@evil.example", "http:x#line=1", "/x#line=1", "https:x",
]  # fmt: skip


@pytest.fixture(scope="module")
def sanitized(chromium):
    with page_in(chromium) as page:
        load(page, module("sanitize.js"))
        yield lambda html: page.evaluate(
            """(html) => {
                const kept = document.createElement("div");
                kept.append(script.parse(html));
                return kept.innerHTML;
            }""",
            html,
        )


def test_what_we_render_is_kept(sanitized):
    assert " ".join(sanitized(OURS).replace('checked=""', "checked").split()) == " ".join(
        OURS.replace(" disabled>", ' disabled="">')
        .replace(" selected>", ' selected="">')
        .replace("open ", 'open="" ')
        .split()
    )


@pytest.mark.parametrize("html", DROPPED)
def test_elements_that_we_never_render_are_dropped(sanitized, html):
    assert sanitized(f"<p>a</p>{html}<p>b</p>") == "<p>a</p><p>b</p>"


@pytest.mark.parametrize("html", ATTRIBUTES)
def test_attributes_that_we_never_render_are_dropped(sanitized, html):
    assert sanitized(html) == ATTRIBUTES[html]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_link_leads_to_a_file_beside_the_notebook_alone(sanitized, address):
    for end in ("", "#line=1"):
        escaped = address.replace("<", "&lt;").replace(">", "&gt;")
        assert sanitized(f'<a href="{escaped}{end}">x</a>') == "<a>x</a>"
