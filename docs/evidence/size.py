"""Print the size of the package.

Lines, files, functions, record types, names that exist twice, processes, import chains.

``python docs/evidence/size.py`` prints a table for the whole package, with folders as arguments for
these alone. Nothing compares these numbers; ``tests/test_layout.py`` uses the functions that find
names, processes and imports.
"""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mnistbench"

#: Bases and decorators of record types.
RECORDS = {"NamedTuple", "TypedDict"}

#: Functions of core/options.py that declare an option or an argument.
DECLARE = {"option", "switch", "argument", "after_dashes"}


def trees(folder: Path) -> dict[Path, ast.Module]:
    """Return the parsed modules of a folder."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))
    }


def lines(paths) -> int:
    """Return the number of lines of files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def nodes(modules, *kinds):
    """Return the nodes of these kinds in all modules."""
    return [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, kinds)]


def functions(modules):
    """Return all functions and methods."""
    return nodes(modules, ast.FunctionDef, ast.AsyncFunctionDef)


def mean_length(modules) -> float:
    """Return the mean number of lines of a function."""
    nodes = functions(modules)
    return sum(node.end_lineno - node.lineno + 1 for node in nodes) / len(nodes)


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass, a named tuple or a typed dictionary."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return bool(bases & RECORDS) or any(
        "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def twice(modules) -> list[str]:
    """Return the class names that exist more than once.

    A command's options are always called Settings.
    """
    counted = Counter(node.name for node in nodes(modules, ast.ClassDef))
    return sorted(name for name, count in counted.items() if count > 1 and name != "Settings")


def with_popen(modules) -> list[str]:
    """Return the modules that start processes with Popen."""
    return [
        str(path.relative_to(PACKAGE))
        for path, tree in modules.items()
        if any(
            isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Popen")
            for node in ast.walk(tree)
        )
    ]


def imported(path: Path, tree: ast.Module, *, everywhere: bool) -> set[Path]:
    """Return the modules of the package that a module imports, at its top level or everywhere."""
    paths = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "mnistbench"
        ):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                module = ROOT.joinpath(*name.split(".")).with_suffix(".py")
                if module.exists() and module != path:
                    paths.add(module)
    return paths


def options(modules) -> int:
    """Return the number of declared options and arguments.

    One that several commands inherit counts once.
    """
    return sum(ast.unparse(node.func) in DECLARE for node in nodes(modules, ast.Call))


def longest_chain(modules) -> int:
    """Return the number of modules in the longest chain of imports."""
    graph = {path: imported(path, tree, everywhere=True) for path, tree in modules.items()}
    known: dict[Path, int] = {}

    def depth(path: Path) -> int:
        if path not in known:
            known[path] = 1 + max(
                (depth(dependency) for dependency in graph.get(path, ())), default=0
            )
        return known[path]

    return max(map(depth, graph))


def loaded(command: str) -> int:
    """Return the number of the package's modules that ``mnistbench COMMAND --help`` loads."""
    program = (
        "import sys; from mnistbench import cli\n"
        f"try: cli.main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
        "print(sum(name.startswith('mnistbench') for name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return int(done.stderr.split()[-1])


def main() -> None:
    """Print the table."""
    folders = [Path(name).resolve() for name in sys.argv[1:]] or [PACKAGE]
    modules = {path: tree for folder in folders for path, tree in trees(folder).items()}
    rows = [
        ("lines", lines(modules)),
        ("files", len(modules)),
        ("functions", len(functions(modules))),
        ("mean length of a function", round(mean_length(modules), 1)),
        ("record types", sum(is_record(node) for node in nodes(modules, ast.ClassDef))),
        ("options and arguments", options(modules)),
        ("class names that exist twice", ", ".join(twice(trees(PACKAGE))) or 0),
        ("modules that call Popen", ", ".join(with_popen(modules)) or 0),
    ]
    if folders == [PACKAGE]:
        course = [path for path in modules if PACKAGE / "course" in path.parents]
        rows += [
            ("lines without course/", lines(set(modules) - set(course))),
            ("files without course/", len(modules) - len(course)),
            ("longest chain of imports", longest_chain(modules)),
            *(
                (f"modules loaded by {command}", loaded(command))
                for command in ("list", "compare", "gate")
            ),
            ("lines of tests/", lines((ROOT / "tests").rglob("*.py"))),
        ]
    for name, value in rows:
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
