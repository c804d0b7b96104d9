r"""A table as LaTeX with booktabs, ready to paste: grouped headers, best bold, second underlined, footnotes.

The same table always gives the same bytes, so that a paper under version control shows what moved.
"""

from __future__ import annotations

import re
import unicodedata

from nco_bench.reports.tables.parts import groups_of, strips_of
from nco_bench.reports.tables.table import DASH, Number, Table, Value

WIDE = 9
"""From this many columns on, the table is scaled down to the line width where it is wider."""

LINES = 50
"""With more lines than these in all its strips, each is a table of its own: a float does not break between pages."""

NOTES = 20
"""With more notes than these they stand behind the table, for the same reason."""

LONG = 50
"""From this many rows on, the table is a longtable, which breaks between pages."""

ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}",
    "–": "--", "—": "---", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$",
    "·": r"$\cdot$", "→": r"$\rightarrow$", "∞": r"$\infty$", "µ": r"$\mu$", "μ": r"$\mu$", "α": r"$\alpha$",
    "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "η": r"$\eta$", "θ": r"$\theta$",
    "κ": r"$\kappa$", "λ": r"$\lambda$", "π": r"$\pi$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$",
    "φ": r"$\varphi$", "ω": r"$\omega$", "Δ": r"$\Delta$", "Σ": r"$\Sigma$", "Ω": r"$\Omega$",
    "†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}", "¶": r"\P{}",
    "‖": r"$\Vert$", "®": r"\textregistered{}", "™": r"\texttrademark{}", "’": "'", "…": r"\dots{}",
}  # fmt: skip

HEAD_LINES = 3
"""Of each strip: groups, columns, space."""

CONTINUED = (
    r"\end{table}", r"\begin{table}[tbp]", r"\addtocounter{table}{-1}", r"\centering", r"\caption{(continued)}",
    r"\small", r"\smallskip",
)  # fmt: skip
"""Between strips that are tables of their own; all have one number."""

DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,margin=20mm%s]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage{longtable}
\begin{document}
%s\end{document}
"""


def render(table: Table, *, document: bool = False) -> str:
    """Return a ``table`` environment.

    Parameters
    ----------
    table
        The table.
    document
        Whether to wrap it in a document that compiles as it is.
    """
    long, wide = len(table.rows) >= LONG, len(table.columns) >= WIDE
    text = _long_environment(table) if long else _environment(table)
    if not document:
        needs = ", ".join(["booktabs", *(["longtable"] if long else ["graphicx"] if wide else [])])
        twice = "; columns are aligned after LaTeX has run twice or more" if long else ""
        return f"% needs \\usepackage{{{needs}}}{twice}\n" + text
    return DOCUMENT % (",landscape" if wide else "", text)


def escape(text: str) -> str:
    """Escape for LaTeX; letters outside Latin-1 that have no plain form become question marks."""
    out: list[str] = []
    for char in " ".join(text.split()):
        if char == "-" and out and out[-1].endswith("-"):
            out.append("{}-")  # two hyphens of an option, no dash
        elif char in ESCAPES:
            out.append(ESCAPES[char])
        elif ord(char) < 128 or (0xC0 <= ord(char) <= 0xFF and char.isalpha()):
            out.append(char)
        else:
            plain = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
            out.append("".join(ESCAPES.get(c, c) for c in plain) or "?")
    return "".join(out)


def _long_environment(table: Table) -> str:
    """A table over several pages; it cannot be scaled, so many columns get smaller type and less air."""
    size = r"\tiny\setlength{\tabcolsep}{2pt}" if len(table.columns) >= WIDE else r"\small"
    head = _head(table)
    lines = [rf"{{{size}\setlength{{\LTcapwidth}}{{\linewidth}}", _begin(table, "longtable")]
    lines += [
        rf"\caption{{{escape(table.caption)}}}\label{{tab:{_label(table)}}}\\",
        *head,
        r"\endfirsthead",
    ]
    lines += [*head, r"\endhead", r"\bottomrule", r"\endfoot", *_body(table), r"\end{longtable}"]
    lines += [*_notes(table), "}"]
    return "\n".join(lines) + "\n"


def _environment(table: Table) -> str:
    wide, strips = len(table.columns) >= WIDE, strips_of(table)
    apart = len(strips) > 1 and len(strips) * (len(table.rows) + HEAD_LINES) > LINES
    lines = [r"\begin{table}[tbp]", r"\centering", rf"\caption{{{escape(table.caption)}}}"]
    lines += [rf"\label{{tab:{_label(table)}}}", r"\small", r"\smallskip"]
    for number, strip in enumerate(strips):
        if number:
            lines += CONTINUED if apart else ["", r"\medskip"]
        lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"] if wide else []
        lines += _tabular(strip)
        if wide:
            lines[-1] += "}"
    if len(table.notes) > NOTES:
        return "\n".join([*lines, r"\end{table}", *_notes_behind(table)]) + "\n"
    lines += _notes(table)
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def _notes_behind(table: Table) -> list[str]:
    r"""Notes as text behind the table, which breaks between pages."""
    notes = [rf"\noindent {_marks((note.mark,))}{escape(note.text)}\par" for note in table.notes]
    named = rf"\noindent Notes to Table~\ref{{tab:{_label(table)}}}:\par"
    return ["", r"{\footnotesize", named, *notes, "}"]


def _notes(table: Table) -> list[str]:
    if not table.notes:
        return []
    notes = [rf"{_marks((note.mark,))}{escape(note.text)}\par" for note in table.notes]
    return [
        "",
        r"\smallskip",
        r"\noindent\begin{minipage}{\linewidth}\footnotesize",
        *notes,
        r"\end{minipage}",
    ]


def _tabular(table: Table) -> list[str]:
    return [_begin(table, "tabular"), *_head(table), *_body(table), r"\bottomrule", r"\end{tabular}"]


def _begin(table: Table, environment: str) -> str:
    return (
        rf"\begin{{{environment}}}{{l{''.join(_alignment(table, i) for i in range(1, len(table.columns)))}}}"
    )


def _alignment(table: Table, index: int) -> str:
    """Left for a column of words that stands alone; right for numbers, and for what stands in their place."""
    column, cells = table.columns[index], [row.cells[index] for row in table.rows]
    words = any(cell != DASH for cell in cells) and not any(isinstance(cell, Number) for cell in cells)
    return "l" if words and not column.group and not column.unit else "r"


def _head(table: Table) -> list[str]:
    lines = [r"\toprule"]
    groups = groups_of(table.columns)
    if any(group for group, _ in groups):
        upper = [
            rf"\multicolumn{{{len(m)}}}{{c}}{{{escape(group)}}}" if group else " & ".join([""] * len(m))
            for group, m in groups
        ]
        lines.append(" & ".join(upper).strip() + r" \\")
        rules = [rf"\cmidrule(lr){{{m[0] + 1}-{m[-1] + 1}}}" for group, m in groups if group]
        lines.append(" ".join(rules))
    lower = [escape(column.title) for column in table.columns]
    return [*lines, " & ".join(lower) + r" \\", r"\midrule"]


def _body(table: Table) -> list[str]:
    lines = []
    for previous, row in zip((None, *table.rows), table.rows, strict=False):
        if previous is not None and previous.section != row.section:
            lines.append(r"\midrule")
        line = " & ".join(_cell(cell) for cell in row.cells) + r" \\"
        # What ends the line before would take a bracket or a star for an option of its own.
        lines.append("{}" + line if line.startswith(("[", "*")) else line)
    return lines


def _cell(cell: Value) -> str:
    marks = _marks(cell.marks)
    if not isinstance(cell, Number):
        return escape(cell.text) + marks
    space = r"\," if cell.suffix.startswith(" ") else ""
    text = cell.text.replace("-", "$-$") + space + escape(cell.suffix)
    text = {1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}.get(cell.rank, text)
    return text + marks


def _marks(marks: tuple[str, ...]) -> str:
    shown = [escape(mark) for mark in marks if mark]
    return rf"\textsuperscript{{{','.join(shown)}}}" if shown else ""


def _label(table: Table) -> str:
    return re.sub("[^0-9A-Za-z]+", "-", table.label or table.name).strip("-")
