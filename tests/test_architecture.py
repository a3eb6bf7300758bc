"""The picture in docs/ARCHITECTURE.md, enforced: which way imports point, and who sees the future."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kvsim"
MODULES = sorted(PACKAGE.rglob("*.py"))

FOUNDATION = {"core", "errors", "protocols"}
TABLES = FOUNDATION | {"tables"}
RESULTS = TABLES | {"files", "analysis", "runs"}
MAY_IMPORT = {
    "core": set(),
    "errors": set(),
    "lists": {"errors"},
    "protocols": {"core"},
    "tables": {"core"},
    "files": {"errors"},
    "registry": {"errors"},
    "slo": {"errors"},
    "quotas": {"core", "errors"},
    "scenario": {"errors", "quotas", "slo"},
    "scenario_file": {"errors", "scenario"},
    "routing": FOUNDATION,
    "workload": FOUNDATION | {"files"},
    "memory": FOUNDATION | {"quotas"},
    "scheduling": FOUNDATION,
    "catalog": FOUNDATION,
    "layout": FOUNDATION | {"catalog"},
    "sizing": FOUNDATION | {"catalog", "layout"},
    "grouping": FOUNDATION | {"catalog", "layout", "memory"},
    "costs": FOUNDATION | {"catalog", "layout"},
    "simulation": TABLES,
    "analysis": TABLES | {"slo"},
    "caching": RESULTS | {"memory", "plots", "quotas"},
    "parquet": TABLES,
    "runs": TABLES | {"files", "analysis", "parquet"},
    "plots": RESULTS | {"report"},
    "profile_plots": FOUNDATION | {"catalog", "costs", "files", "plots"},
    "export": RESULTS,
    "report": RESULTS | {"export"},
    "timeline": RESULTS,
}
"""What each part may import besides itself; parts that are not listed are at the top and may import
everything but the command line."""

AT_THE_TOP = {
    "advice",
    "compose",
    "execution",
    "frames",
    "leakage",
    "planning",
    "reporting",
    "sweeping",
    "validation",
    "reproductions",
    "cli",
    "__main__",
    "__init__",
}
DRAWS = {
    "caching/figures.py",
    "leakage/figures.py",
    "plots.py",
    "profile_plots.py",
    "reporting/figures.py",
    "reporting/panels.py",
    "reporting/pdf.py",
    "reporting/typeset.py",
    "reproductions/figures.py",
    "validation/figures.py",
}
FORBIDDEN = {"torch", "triton", "streamlit", "plotly", "kernels"}


def part(module: Path) -> str:
    """The part of the picture that a module belongs to."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(module: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are absolute"
            yield str(node.module)
            if node.module == "kvsim":
                yield from (f"kvsim.{alias.name}" for alias in node.names)


def shown(module: Path) -> str:
    return str(module.relative_to(ROOT))


@pytest.mark.parametrize("module", MODULES, ids=shown)
def test_imports_point_the_way_of_the_picture(module: Path) -> None:
    own = part(module)
    assert own in MAY_IMPORT or own in AT_THE_TOP, f"{own} is not in docs/ARCHITECTURE.md"
    inside = {name.split(".")[1] for name in imports(module) if name.startswith("kvsim.")}
    if own in MAY_IMPORT:
        assert inside <= MAY_IMPORT[own] | {own, "__version__"}
    elif own != "__main__":
        assert own == "cli" or "cli" not in inside


@pytest.mark.parametrize("module", MODULES, ids=shown)
def test_heavy_libraries_have_one_home(module: Path) -> None:
    outside = {name.split(".")[0] for name in imports(module)}
    assert not outside & (FORBIDDEN if part(module) != "execution" else FORBIDDEN - {"torch"})
    assert "simpy" not in outside or part(module) == "simulation"
    assert "pandas" not in outside or part(module) == "frames"
    assert "matplotlib" not in outside or module.relative_to(PACKAGE).as_posix() in DRAWS


SEES_THE_FUTURE = {"scheduling/running.py", "memory/reservation.py"}
"""The decode clock, which ends answers, and the Orca baselines, which are defined by knowing them."""


@pytest.mark.parametrize("module", MODULES, ids=shown)
def test_no_decision_reads_the_true_length_of_an_answer(module: Path) -> None:
    place = module.relative_to(PACKAGE).as_posix()
    if part(module) not in {"scheduling", "memory", "routing"} or place in SEES_THE_FUTURE:
        return
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        assert name != "output_tokens", f"{place}:{node.lineno} reads the true output length"
        assert not isinstance(node, ast.Constant) or node.value != "output_tokens"


def test_every_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    present = {
        ".".join(folder.parent.relative_to(ROOT).parts) for folder in PACKAGE.rglob("__init__.py")
    }
    assert present <= listed


def test_nothing_is_unpickled_or_evaluated() -> None:
    for module in MODULES:
        assert not {"pickle", "marshal", "shelve", "dill"} & set(imports(module))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "attr", None) or getattr(called, "id", None)
            assert name not in {"unsafe_load", "full_load"}, shown(module)
            assert not (isinstance(called, ast.Name) and called.id in {"eval", "exec"})


def test_nothing_is_printed_as_minus_nothing() -> None:
    for module in [*MODULES, *(ROOT / "dashboards").rglob("*.py")]:
        for line in module.read_text(encoding="utf-8").splitlines():
            assert ":+" not in line.replace(":+z", ""), f"{module.name}: {line.strip()}"
    assert f"{-0.0001:+z.1%}" == "+0.0%"


def test_the_picture_is_short_and_names_every_part() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    parts = {part(module) for module in MODULES} - {"__init__", "__main__"}
    missing = {name for name in parts if f"{name}.py" not in text and f"{name}/" not in text}
    assert not missing
