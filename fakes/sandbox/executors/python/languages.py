"""The command lines of the real server for each language, and the files that it adds.

Pure: nothing is read, written or started here. A host without a runtime needs no special case: bash
reports `command not found`, in the compile step or the run step as on the real server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol import CommandResult, RunCode

_PACKAGE_JSON = (
    '{"name": "coderunner", "version": "1.0.0", "scripts": {"test": "FORCE_COLOR=0 jest"}}\n'
)
_GO_MOD = "module sandbox\n\ngo 1.22\n"
_JUNIT = "junit-platform-console-standalone-1.8.2.jar"


@dataclass(frozen=True, slots=True)
class Language:
    """How to run one language.

    In command lines, `{source}` is the path of the program, `{cwd}` the work directory.
    """

    run: str
    compile: str | None = None
    suffix: str | None = None
    """The program is written to a file with a random name and this suffix."""
    source: str | None = None
    """The program is written to a file of this name."""
    prepare: str | None = None
    """A command to run first; its result is ignored."""
    extras: Mapping[str, str] = field(default_factory=dict)
    """Files to write before those of the request."""
    env: Mapping[str, str] = field(default_factory=dict)
    node_modules: bool = False
    takes_files: bool = True
    gives_files: bool = True


def _script(command: str, suffix: str) -> Language:
    return Language(run=f"{command} {{source}}", suffix=suffix)


LANGUAGES: Mapping[str, Language] = {
    "python": _script("python", ".py"),
    # Plugins of the fake's own Python would appear in the output, and take seconds to load.
    "pytest": Language(
        run="pytest {source}", suffix=".py", env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ),
    "bash": _script("/bin/bash", ".sh"),
    "lua": _script("lua", ".lua"),
    "R": _script("Rscript", ".R"),
    "perl": _script("perl", ".pl"),
    "ruby": _script("ruby", ".rb"),
    "julia": _script("julia", ".jl"),
    "racket": _script("racket", ".rkt"),
    "kotlin_script": _script("kotlin", ".kts"),
    "php": _script("php -f", ".php"),
    "nodejs": Language(run="node {source}", suffix=".js", node_modules=True),
    "typescript": Language(run="tsx {source}", suffix=".ts", node_modules=True),
    "jest": Language(
        run="npm run test",
        suffix=".test.ts",
        extras={"package.json": _PACKAGE_JSON},
        # npm would ask its registry for a newer npm, and add a notice to stderr on the day that
        # there is one.
        env={"NPM_CONFIG_UPDATE_NOTIFIER": "false"},
        node_modules=True,
    ),
    "cpp": Language(
        compile="g++ -std=c++17 {source} -o test {cpp_flags}", run="./test", suffix=".cpp"
    ),
    "rust": Language(compile="rustc {source} -o test", run="./test", suffix=".rs"),
    "D_ut": Language(compile="dmd {source} -unittest -of=test", run="./test", suffix=".d"),
    "swift": Language(compile="swiftc {source} -o test.out", run="./test.out", suffix=".swift"),
    "go": Language(
        compile="go build -o out {source}", run="./out", suffix=".go", extras={"go.mod": _GO_MOD}
    ),
    "go_test": Language(run="go test {source}", suffix="_test.go", extras={"go.mod": _GO_MOD}),
    "csharp": Language(
        run="dotnet run --project {cwd}",
        source="Program.cs",
        prepare="dotnet new console -o {cwd}",
        env={"DOTNET_CLI_TELEMETRY_OPTOUT": "1"},
    ),
    "java": Language(
        compile="javac -cp {class_path} Main.java",
        run="java -cp {class_path} -ea Main",
        source="Main.java",
    ),
    "junit": Language(
        compile="javac -cp {class_path} *.java",
        run=f"java -jar ./{_JUNIT} --class-path {{class_path}} --scan-class-path",
        source="{java_class}.java",
    ),
    "scala": Language(compile="scalac {source}", run="scala {scala_object}", suffix=".scala"),
    "verilog": Language(
        compile="iverilog -Wall -Winfloop -Wno-timescale -g2012 -s tb -o test.vvp {source};",
        run="vvp -n test.vvp",
        suffix=".sv",
        takes_files=False,
    ),
    "lean": Language(run="lake build", source="Main.lean"),
    # These two are projects sent as files; the code of the request is not used.
    "cuda": Language(
        compile="mkdir build && cd build && cmake .. && make -j 4",
        run="./build/main",
        gives_files=False,
    ),
    "python_gpu": Language(compile="python compile.py", run="python run.py", gives_files=False),
}
"""Every language with a runner. `sql` passes the real server's validation but has none."""


def _class_path(request: RunCode) -> str:
    jars = ["javatuples-1.2.jar"]
    if request.language == "junit":
        jars = [_JUNIT, "junit-jupiter-api-5.11.0-javadoc.jar"]
    sent = [name for name in request.files if name.endswith(".jar")]
    return ":".join([".", *jars, *sent])


def _scala_object(request: RunCode) -> str:
    found = re.search(r"\bobject\s+(\w+)", request.code)
    return found[1] if found else ""


def words(request: RunCode) -> dict[str, str]:
    """Return the placeholders for command lines of the request's language, besides its files."""
    java = re.search(r"\bpublic\s+(?:\w+\s+)*class\s+(\w+)", request.code)
    return {
        "class_path": _class_path(request),
        "java_class": java[1] if java else "Main",
        "scala_object": _scala_object(request),
    }


def written_code(request: RunCode) -> str:
    """Return the program as the real server writes it to the file."""
    if request.language != "php":
        return request.code
    code = request.code.lstrip()
    return code if code.startswith("<?php") else f"<?php\n{code}"


def refused_by_language(request: RunCode) -> CommandResult | None:
    """Return the compile result for a program that is refused before it is written."""
    if request.language == "scala" and not _scala_object(request):
        return CommandResult("Error", return_code=1, stderr="Object name not found.")
    return None
