"""Lists the experiments, one line each, without importing them."""

from __future__ import annotations

import ast
import pathlib


def descriptions() -> dict[str, str]:
    """The first line of each experiment's docstring, by name."""
    found = {}
    for path in sorted(pathlib.Path(__file__).parent.iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if path.name.startswith(("_", ".")) or source.suffix != ".py" or not source.is_file():
            continue
        docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
        found[path.stem] = docstring.partition("\n")[0]
    return found


def main() -> None:
    """Print the table."""
    found = descriptions()
    width = max(map(len, found), default=0)
    for name, description in found.items():
        print(f"{name:{width}}  {description}")


if __name__ == "__main__":
    main()
