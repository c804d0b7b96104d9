"""The documentation site: every command on it is one, every name is there, dead links and foreign files are found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nco_bench.cards import cards
from nco_bench.cli.app import command

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "cli")]

from commands import accepted, all_commands  # noqa: E402

from tools.docs import assemble, check, papers, records, solvers  # noqa: E402
from tools.docs import commands as command_pages  # noqa: E402
from tools.docs.markdown import relinked  # noqa: E402

STANDS_FOR = {"...": "", "…": "", "SEED": "1"}
"""What stands in a sentence for words that are left out, and for a number."""

NOT_COMMANDS = {"nco-bench convention=euclidean"}
"""What begins with the program's name and is something else: a comment in a file."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every page that needs neither records nor pictures."""
    folder = tmp_path_factory.mktemp("site")
    by_hand = {path: (ROOT / path).read_text() for path in assemble.hand_written() if path.endswith(".md")}
    by_hand.pop("CHANGELOG.md")  # what commands were called then
    tables = papers.pages(ROOT / "results" / "tables", folder / "files")
    return {**by_hand, **command_pages.pages(), **solvers.pages({}, {}), **tables}


def commands_of(text: str) -> set[str]:
    """Return the commands of a page: lines of blocks, and code in sentences."""
    text = re.sub(r"\\\n\s*", "", text)  # a line that goes on
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^ {4}(nco-bench .*)$", text, re.MULTILINE)
    lines += [" ".join(code.split()) for code in re.findall(r"(?<!`)`(nco-bench [^`]+)`", text)]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return {part.partition("   #")[0] for part in parts if part.startswith("nco-bench ")}


def usage(line: str) -> bool:
    """Whether a line says how a command is written, or only names one, rather than being one."""
    names = {f"nco-bench {words}" for words, _ in all_commands()}
    own = {name for parameter in command().params for name in parameter.opts}
    return (
        line.endswith(("[OPTIONS]", "COMMAND ..."))
        or line in names | NOT_COMMANDS
        or line.split(" ")[1] in own | {"--install-completion", "--help"}
    )


def test_every_command_on_the_pages_is_one(
    made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('solvers = ["lkh3"]\ndata = ["tsp100"]\n')  # an example reads it
    found = {(page, line) for page, text in made.items() for line in commands_of(text) if not usage(line)}
    assert len(found) > 150
    wrong = []
    for page, line in sorted(found):
        words = [STANDS_FOR.get(word, word) for word in re.sub(r" \[(--\S+) \S+\]", "", line).split(" ")]
        try:
            accepted(" ".join(words))
        except Exception as error:  # whatever click raises, with the page that it stands on
            wrong.append(f"{page}: {line}: {type(error).__name__}: {error}")
    assert "\n".join(wrong) == ""


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert commands_of("See `nco-bench fly`, or\n\n```text\nnco-bench run a --dta b && nco-bench list x\n```\n") == {
        "nco-bench fly", "nco-bench run a --dta b", "nco-bench list x",
    }  # fmt: skip
    with pytest.raises(KeyError):
        accepted("nco-bench fly")
    with pytest.raises(Exception, match="dta"):
        accepted("nco-bench run a --dta b")


def test_the_pages_of_the_command_line_have_every_command_and_option(made: dict[str, str]) -> None:
    for words, one in all_commands():
        page = made[f"cli/{words.split()[0]}" if words else "cli/index"]
        assert f"nco-bench {words}".strip() in page
        for parameter in one.params:
            if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
                assert all(f"{name}" in page for name in parameter.opts), f"{words}: {parameter.opts}"


def test_every_card_and_every_public_name_has_its_place(made: dict[str, str]) -> None:
    import nco_bench

    assert {f"solvers/{name}" for name in cards()} <= set(made)
    for name, card in cards().items():
        assert f"]({name}.md)" in made["solvers/index"], name
        assert all(f"`{key}`" in made[f"solvers/{name}"] for key in card.params), name
    shown = made["docs/api.md"] + made["docs/writing-a-solver.md"]
    assert [name for name in nco_bench.__all__ if f"nco_bench.{name}\n" not in shown] == []


def test_a_repository_is_linked_whether_a_card_names_it_or_gives_its_address(made: dict[str, str]) -> None:
    assert "[CIAM-Group/SIL](https://github.com/CIAM-Group/SIL)" in made["solvers/sit"]
    assert "[Baran-phys/Tropical-Attention](https://github.com/Baran-phys/" in made["solvers/tropical"]
    assert not any("github.com/https:" in text for text in made.values())


def test_the_data_that_solver_pages_name_exist(tmp_path: Path) -> None:
    from nco_bench.datasets.load import Places, load_dataset

    for problem, name in solvers.EXAMPLE.items():
        assert (
            load_dataset(f"{name}" if "count" in name else f"{name}:count=2", Places(tmp_path)).problem
            == problem
        )


def test_the_pages_name_no_folder_of_the_machine(made: dict[str, str]) -> None:
    for page, text in made.items():
        assert str(ROOT) not in text, page
        assert str(Path.home()) + "/" not in text, page


def test_a_printed_number_stands_over_ours_with_its_status(tmp_path: Path) -> None:
    file = tmp_path / "x-table-1-cpu.md"
    file.write_text(
        "| Row | Column | Published | Measured | Status | Reason |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| A\\_1 | TSP100 \\| Gap | 0.34% | 12.69% | other weights | a |\n"
        "| B | TSP100 \\| Gap | 0.50% | – | not run | b |\n\n"
        "a few C\\_v samples  \nb too much  \n\n*x Table 1.*\n"
    )
    text = papers._compact(papers.read(file, "cpu"))
    assert "| A\\_1 | 0.34%<br>**12.69%**<br>other weights (a) |" in text
    assert "TSP100 <br> Gap" in text
    assert "0.50%" not in text
    assert "1 row of the paper has no number of ours" in text
    assert "- a few C\\_v samples" in text
    assert "b too much" not in text


def test_what_is_stored_twice_under_two_names_is_told_once() -> None:
    stored = records.stored(ROOT / "results")["decoder-6x128"]
    names = {(one.label, one.decoding, one.dataset) for one in stored if one.instances == 1000}
    assert names == {("decoder-6x128", "greedy", "tsp100")}


def test_links_lead_to_pages_where_there_are_some(tmp_path: Path) -> None:
    for name in ("docs/a.md", "docs/b.md", "results/README.md", "results/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    pages = {"docs/a.md": "a", "docs/b.md": "b", "results/README.md": "results/index"}
    source = tmp_path / "results" / "README.md"
    text = "[B](../docs/b.md#c) [data](x.csv) [x.csv](x.csv) [gone](gone.md) [out](https://example.org/a)"
    assert relinked(text, source, "results/index", pages, tmp_path) == (
        "[B](../b.md#c) data (`results/x.csv`) `results/x.csv` [gone](gone.md) [out](https://example.org/a)"
    )


def test_a_new_page_is_in_the_index_without_an_edit() -> None:
    index = assemble._with_further(
        (ROOT / "docs" / "index.md").read_text(), {"docs/cluster-2.md": "cluster-2"}
    )
    assert "\ncluster-2\n" in index
    assert "further pages" not in index


def test_dead_links_and_foreign_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id="here">b</p>')
    good = '<a href="b.html#here"></a><a href="https://example.org"></a><img src="data:image/png;base64,x">'
    (tmp_path / "a.html").write_text(good)
    assert check.findings(tmp_path) == []
    bad = (
        '<a href="b.html#there"></a><a href="c.html"></a><script src="https://cdn.example.org/x.js"></script>'
    )
    (tmp_path / "a.html").write_text(bad)
    (tmp_path / "x.css").write_text("a { background: url(https://example.org/x.png) }")
    assert sorted(check.findings(tmp_path)) == [
        "a.html: b.html#there names no place of that page",
        "a.html: c.html leads nowhere",
        "a.html: loads https://cdn.example.org/x.js",
        "x.css: loads from another place",
    ]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "furo", "myst_parser", "torch", "matplotlib"):
        pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {file.relative_to(tmp_path / "html").as_posix() for file in (tmp_path / "html").rglob("*.html")}
    assert {
        "index.html",
        "first-hour.html",
        "search.html",
        "solvers/lkh3.html",
        "cli/run.html",
        "papers/pens.html",
    } <= pages
    assert "lkh3.png" in {file.name for file in (tmp_path / "html" / "_images").iterdir()}
    assert "beam" in (tmp_path / "html" / "searchindex.js").read_text()
