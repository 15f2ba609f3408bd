"""Where a link leads: to a file of the page's server, to a cell, or to a text that is shown; and what the page makes of it."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import expect

import ddpnb.pitfalls
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.places import answer
from ddpnb.recording.calls import Site
from ddpnb.render import answers, markup
from tests.notebook.widgets.standin import page_in, show

SCRIPT = "".join(f"line {number}\n" for number in range(1, 61))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "jobs" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(("root", "path"), [("", "jobs/train.py"), ("jobs", "train.py"), ("other", None)])
def test_a_file_below_the_root_has_its_path_on_the_server(script, tmp_path, root, path):
    (tmp_path / "other").mkdir()
    found = answer(str(script), 41, str(tmp_path / root), {})
    assert (found["path"], found["cell"]) == (path, None)
    assert found["lines"][41 - found["first"]] == "line 41"


def test_a_root_that_is_a_link_or_begins_with_the_home_folder(script, tmp_path, monkeypatch):
    os.symlink(tmp_path / "jobs", tmp_path / "link")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert answer(str(script), 1, str(tmp_path / "link"), {})["path"] == "train.py"
    assert answer(str(script), 1, "~/jobs", {})["path"] == "train.py"


def test_what_the_server_does_not_serve_is_shown(script, tmp_path):
    hidden = tmp_path / ".venv" / "broken.py"
    hidden.parent.mkdir()
    hidden.write_text("x = 1\n")
    assert answer(str(hidden), 1, str(tmp_path), {})["path"] is None
    assert answer(str(script), 1, "", {})["path"] is None
    pitfall = ddpnb.pitfalls.get("bad-batch-skipped").broken
    found = answer(str(pitfall), 3, str(tmp_path), {})
    assert (found["path"], found["title"]) == (None, "pitfalls/bad-batch-skipped/broken.py")
    assert "\n".join(found["lines"]) == pitfall.read_text()


def test_a_cell_is_known_by_its_number():
    file = "/dev/shm/ddpnb-1-abc/In[3].py"
    found = answer(file, 2, "/dev/shm", {file: "#\nloss.backward()\n"})
    assert (found["cell"], found["path"], found["title"]) == (3, None, "In[3]")
    assert found["lines"][:2] == ["#", "loss.backward()"]


def test_the_text_that_the_ranks_ran_comes_before_that_on_the_disk(script):
    assert answer(str(script), 1, "", {str(script): "old\n"})["lines"] == ["old", ""]


def test_of_much_a_part_is_shown(tmp_path):
    large = tmp_path / "large.py"
    large.write_text("\n".join(f"{number} {'x' * 5000}" for number in range(1, 3001)))
    assert answer(str(large), 650, "", {})["said"] == "only the beginning of this file can be shown"
    large.write_text("\n".join(f"{number} {'x' * 500}" for number in range(1, 3001)))
    found = answer(str(large), 650, "", {})
    assert found["first"] <= 650 < found["first"] + len(found["lines"])
    assert found["lines"][650 - found["first"]].startswith("650 ")
    assert sum(map(len, found["lines"])) < 1 << 20
    assert found["said"] == "lines 1-1650 of 3000"


def test_what_is_not_there_says_so(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    for name in ("nothing.py", "pipe.py", "."):
        assert answer(str(tmp_path / name), 1, "", {})["said"] == "cannot be read here: no such file"


def test_the_page_reads_no_file_but_one_that_is_linked_here(script, monkeypatch):
    part, sent = Fragment(markup.place(Site(str(script), 41, "main"))), []
    monkeypatch.setattr(part, "send", sent.append)

    def asks(file, line):
        part._handle_custom_msg({"action": "place", "values": {"file": file, "line": line, "root": ""}}, [])

    for file, line in (("/etc/passwd", "1"), (str(script), "1"), (str(script), "x"), ("", "")):
        asks(file, line)
    part._handle_custom_msg({"action": "place", "values": None}, [])
    assert not sent
    asks(str(script), "41")
    assert [one["line"] for one in sent] == [41]


@pytest.mark.browser
def test_a_text_is_shown_with_its_line_and_closed_by_keyboard(chromium, script):
    part = Fragment(f"<p>{markup.place(Site(str(script), 41, 'main'))}</p>", label="a part")
    with page_in(chromium) as page:
        show(page, part)
        link = page.get_by_role("link")
        link.focus()
        page.keyboard.press("Enter")
        asked = page.evaluate("sent[0]")
        assert asked == {"action": "place", "values": {"file": str(script), "line": "41", "root": ""}}
        hostile = {
            **answer(str(script), 41, "", {str(script): SCRIPT.replace("line 41", "<img src=x onerror=alert(1)>")})
        }
        page.evaluate("(place) => model.tell(place)", hostile)
        marked = page.locator("[aria-current]")
        expect(marked).to_have_text("41<img src=x onerror=alert(1)>")
        expect(marked).to_be_in_viewport()
        page.keyboard.press("Escape")
        expect(marked).to_have_count(0)
        expect(link).to_be_focused()
        link.click()
        page.evaluate("(place) => model.tell(place)", hostile)
        page.get_by_role("button", name="close").click()
        expect(marked).to_have_count(0)


@pytest.mark.browser
def test_the_lines_come_first_and_an_extension_of_the_page_may_open_the_editor(chromium, script, tmp_path):
    with page_in(chromium) as page:
        show(page, Fragment(markup.place(Site(str(script), 41, "main")), label="a part"))
        page.evaluate(
            "document.addEventListener('ddpnb:open', (event) => { event.preventDefault(); window.taken = event.detail; })"
        )
        page.get_by_role("link").click()
        page.evaluate("(place) => model.tell(place)", answer(str(script), 41, str(tmp_path), {}))
        expect(page.locator("[aria-current]")).to_have_text("41line 41")
        assert page.evaluate("window.taken") is None
        page.get_by_role("button", name="open in the editor").click()
        assert page.evaluate("[taken.path, taken.cell, taken.line]") == ["jobs/train.py", None, 41]
        page.evaluate("taken.otherwise()")  # it could not be opened
        expect(page.get_by_role("button", name="open in the editor")).to_be_disabled()


@pytest.mark.browser
def test_a_file_that_was_written_is_opened_at_once_or_the_click_is_answered(chromium, tmp_path):
    answer_of = answers.html(answers.Answer((), "Written.", file=str(tmp_path / "repro.sh")))
    with page_in(chromium) as page:
        show(page, Fragment(answer_of, label="a part"))
        button = page.get_by_role("button", name="open repro.sh")
        button.click()  # the page does not know where its server has the file
        expect(button).to_have_attribute("aria-busy", "true")
        page.evaluate("(path) => model.tell({ kind: 'place', path: null, file: path })", str(tmp_path / "repro.sh"))
        expect(page.get_by_text("not below the folder of this server")).to_be_visible()
    for app, opened in (("Jupyter Notebook", ["/u/edit/repro.sh", "_blank"]), ("Another", [])):
        with page_in(chromium) as page:
            show(page, Fragment(answer_of, label="a part"))
            config = {"appName": app, "baseUrl": "/u/", "serverRoot": str(tmp_path)}
            page.evaluate(
                """(config) => {
              const given = Object.assign(document.createElement("script"), { type: "application/json", id: "jupyter-config-data" });
              given.textContent = JSON.stringify(config);
              document.body.append(given);
              window.opened = [];
              HTMLAnchorElement.prototype.click = function () { opened.push(this.getAttribute("href"), this.target) };
            }""",
                config,
            )
            page.get_by_role("button", name="open repro.sh").click()
            assert (page.evaluate("opened"), page.evaluate("sent")) == (opened, [])
            expect(page.get_by_text("has no editor")).to_have_count(0 if opened else 1)
