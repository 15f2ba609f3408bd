"""Lines that remove files, and what they name."""

from __future__ import annotations

import pytest

from ddpnb.recording.source.removals import removals


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ('os.remove("a.pt")', ("a.pt",)),
        ('os.replace("a.part", "a.pt")', ("a.part",)),
        ('shutil.rmtree(place / "index")', ("/data/run", "index")),
        ("rmtree(self.folder)", ("/data/run",)),
        ('os.unlink(os.path.join(place, f"{step}.pt"))', ("/data/run", ".pt")),
        ("old.unlink()", ("/data/run", "old.pt")),
        ('Path("a.pt").replace(target)', ("a.pt",)),
        ('os.remove("/data/%s-%03d.pt" % (name, step))', ("/data/", "-", ".pt")),
        ('os.remove("{}/last{:02d}.pt".format(place, step))', ("/last", ".pt", "/data/run")),
        ("os.remove(f\"{os.environ['HOME']}/a.pt\")", ("/a.pt",)),
        ('for each in glob(f"{place}/step-*.pt"): os.remove(each)', ("/data/run", "/step-", ".pt")),
        ('def prune(folder): os.remove(join(folder, "a.pt"))\nprune(place)', ("/data/run", "a.pt")),
        ("def prune(folder): os.remove(folder)\nprune(place)\nprune(sys.argv[1])", None),
        ("os.remove(sys.argv[1])", None),
        ("os.remove(twice)", None),
        ('names.remove("a.pt")', None),
        ('text.replace("a.pt", "b")', None),
    ],
)
def test_what_a_line_removes(line, texts):
    source = (
        f'place = Path("/data/run")\nself.folder = place\nold = place / "old.pt"\ntwice = "x"\ntwice = "y"\n{line}\n'
    )
    found = removals(source)
    assert found.get(6) is None if texts is None else sorted(found[6]) == sorted(texts)


def test_names_that_name_each_other():
    assert removals("a = b\nb = a\nos.remove(a)\n") == removals("def (") == {}
