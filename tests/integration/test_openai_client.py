"""The official `openai` Python client works through the grid: the newest, and the last 1.x (`model` written last)."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.up import Up, running_up
from tradewind.config.schema import CellConfig, EmulatedEngineConfig, EmulationConfig, GatewayConfig, GridConfig

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build"
PINS = HERE / "requirements-openai1.txt"
ANY = "127.0.0.1:0"
MODELS = ("tiny", "other")
INSTALL_TIMEOUT_S = 300.0
USE_TIMEOUT_S = 120.0

Seen = dict[str, object]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two pools of one emulated cell each."""
    cells = [CellConfig(id=f"{model}-0", site="east", url=f"http://{ANY}") for model in MODELS]
    engines = [
        EmulatedEngineConfig(cell=f"{model}-0", profile="fast", model=model, max_model_len=32_768) for model in MODELS
    ]
    config = GridConfig(
        grid="openai",
        sites=["east"],
        gateways=[GatewayConfig(site="east")],
        cells=cells,
        emulation=EmulationConfig(engines=engines),
        dashboard="",
    )
    with running_up(config, tmp_path_factory.mktemp("openai")) as up:
        yield up


@pytest.fixture(scope="module", params=["newest", "1.x"])
def seen(request: pytest.FixtureRequest, grid: Up) -> Seen:
    """What a user of one client version saw."""
    python = sys.executable if request.param == "newest" else old_client()
    command = [python, str(HERE / "openai_user.py"), f"http://127.0.0.1:{grid.port}/v1", *MODELS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=USE_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    assert str(found["version"]).startswith("1.") == (request.param == "1.x")
    return found


def old_client() -> str:
    """A Python that has openai 1.x, installed once under build/; skips where it cannot be installed."""
    venv = BUILD / "openai1-venv"
    python, ready = venv / "bin" / "python", venv / ".ready"
    if not (ready.exists() and ready.read_text() == PINS.read_text()):
        pip = (
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            str(PINS),
        )
        for command in ((sys.executable, "-m", "venv", "--clear", str(venv)), pip):
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            if done.returncode:
                pytest.skip(f"openai 1.x cannot be installed here: {done.stderr.strip()[-200:]}")
        ready.write_text(PINS.read_text())
    return str(python)


def test_models_of_all_pools_are_listed(seen: Seen) -> None:
    assert seen["listed"] == sorted(MODELS)


def test_each_model_is_answered_by_its_pool(seen: Seen) -> None:
    assert seen["answering"] == list(MODELS)


def test_a_large_body_reaches_its_model(seen: Seen) -> None:
    prompt_tokens = seen["large"]
    assert isinstance(prompt_tokens, int)
    assert prompt_tokens > 20_000


def test_chat_answers_whole(seen: Seen) -> None:
    chat = seen["chat"]
    assert isinstance(chat, dict)
    assert (chat["role"], chat["finish"], chat["completion_tokens"]) == ("assistant", "length", 5)
    assert chat["text"]


def test_chat_streams_the_same_text(seen: Seen) -> None:
    assert seen["stream"] == seen["chat"]


def test_completions_answer(seen: Seen) -> None:
    assert seen["completion"] == {"finish": "length", "completion_tokens": 5}


def test_the_request_id_of_the_client_reaches_the_engine(seen: Seen) -> None:
    assert seen["request_id"] == "chatcmpl-mine-42"


def test_an_unknown_model_is_the_sdks_not_found(seen: Seen) -> None:
    assert seen["unknown_model"] == {
        "class": "NotFoundError",
        "status": 404,
        "code": "model_not_found",
        "param": "model",
    }


@pytest.mark.parametrize("call", ["too_long", "too_long_stream"])
def test_too_long_a_prompt_is_the_sdks_bad_request(seen: Seen, call: str) -> None:
    assert seen[call] == {"class": "BadRequestError", "status": 400, "code": "400", "param": "input_tokens"}


def test_a_refused_parameter_is_the_sdks_bad_request(seen: Seen) -> None:
    assert seen["bad_temperature"] == {"class": "BadRequestError", "status": 400, "code": "400", "param": "temperature"}
