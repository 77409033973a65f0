"""Print what a development environment installs: the dependencies, extras and development group of pyproject.toml."""

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(text: str) -> list[str]:
    """All requirements that `text` (a pyproject.toml) names, without references to the project itself."""
    data = tomllib.loads(text)
    project = data["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), *data["dependency-groups"].values()]
    return sorted({line for group in groups for line in group if not line.startswith(f"{project['name']}[")})


if __name__ == "__main__":
    print("\n".join(requirements(PROJECT.read_text())))
