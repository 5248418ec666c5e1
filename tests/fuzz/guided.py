"""Coverage-guided fuzzing of the request parser with atheris; arguments are libFuzzer's."""

import importlib
import sys
import tempfile
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Runs until libFuzzer ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["tradewind.gateway.requests", "tradewind.core.tokens"]):
        inputs = importlib.import_module("tests.fuzz.inputs")

    def one(data: bytes) -> None:
        path = inputs.PATHS[data[0] % len(inputs.PATHS)] if data else ""
        inputs.check(data[2:], path=path, partial=len(data) > 1 and data[1] % 2 == 1)

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(inputs.SEEDS):
            for path in range(len(inputs.PATHS)):
                (Path(corpus) / f"{number}-{path}").write_bytes(bytes((path, 0)) + seed)
        atheris.Setup([sys.argv[0], "-max_len=4096", "-print_final_stats=1", *arguments, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
