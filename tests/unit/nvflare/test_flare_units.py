"""The FLARE engine part by part; whole runs: `tests/contract/test_engine_contract.py`."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install '.[nvflare]'")
pytest.importorskip("flwr", reason="the programs of the tests need Flower, too: pip install '.[flower]'")

from nvflare.collab.api.exceptions import RunAborted

import fedgt.nvflare
import flare_app
import flower_app
from fedgt.engine import Failure
from fedgt.engine.hello import hello_frame, read_answer
from fedgt.errors import SpecError
from fedgt.nvflare import FlareJob, FlareSite, FlareTransport
from fedgt.nvflare.flare_releases import require_supported
from fedgt.nvflare.local_file import parsed, program_at
from flare_machines import identity_files
from flare_sites import Proxy, called, proxies, workspace
from flower_machines import write_consortium

TRAIN = 'train = "flare_app:train"\n'
HELLO = ("hello", hello_frame(None)[1])


@pytest.mark.parametrize("version", ["2.8.3", "2.10.0", "3.0.1"])
def test_another_release_is_refused_with_both_versions(version: str) -> None:
    with pytest.raises(SpecError, match=rf"nvflare >= 2.9, < 2.10; nvflare {version} is installed"):
        require_supported(version)
    require_supported("2.9.3")


def test_all_public_names_can_be_imported() -> None:
    for name in fedgt.nvflare.__all__:
        assert getattr(fedgt.nvflare, name) is not None
    with pytest.raises(AttributeError):
        fedgt.nvflare.Controller  # noqa: B018


# The file of a machine --------------------------------------------------------------------------------------------------


def test_a_file_says_who_trains_and_with_what(tmp_path: Path) -> None:
    path = tmp_path / "fedgt.toml"
    path.write_text(
        f'{TRAIN}client = "aarhus"\nkey = "{{client}}.id"\njournal = "/var/j"\n[settings]\ndata = "a.npz"\n'
    )
    found = parsed(path, "train", name="site-1")
    assert (found.client, found.program, found.settings) == ("aarhus", "flare_app:train", {"data": "a.npz"})
    assert found.files["key"] == tmp_path / "aarhus.id"
    assert found.files["journal"] == Path("/var/j")
    assert found.files["policy"] is None
    path.write_text(TRAIN)
    assert parsed(path, "train", name="site-1").client == "site-1"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is missing"),
        ("train = ", "cannot be read"),
        ('main = "a:b"', "does not say what runs here: train"),
        (TRAIN + 'polcy = "policy.toml"', "polcy = 'policy.toml' is not one of the texts"),
        (TRAIN + "journal = 3", "journal = 3 is not one of the texts"),
        (TRAIN + 'key = ""', "key = '' is not one of the texts"),
        (TRAIN + "settings = 3", "settings is a int"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "fedgt.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=reason):
        parsed(path, "train", name="site-1")


@pytest.mark.parametrize("place", ["nowhere:train", "flare_app", "flare_app:absent", "", ":", "flare_sites:SUPPORT"])
def test_a_program_that_is_not_there_is_refused(place: str) -> None:
    with pytest.raises(SpecError, match="there is no program"):
        program_at(place)


def test_a_program_is_a_function() -> None:
    assert program_at("flare_app:train") is flare_app.train
    with pytest.raises(SpecError, match="is a str, a function is needed"):
        program_at("flare_machines:PROGRAMS")


# A site -----------------------------------------------------------------------------------------------------------------


def test_a_site_says_who_it_is(tmp_path: Path) -> None:
    nonce, question = hello_frame(None)
    exchange = called(FlareSite(), "ada", workspace(tmp_path / "ada"))
    assert read_answer(exchange("hello", question)["frame"], nonce=nonce, credentials=None).client == "ada"


def test_a_site_answers_nobody_but_the_server(tmp_path: Path) -> None:
    """Each site of a job can call the published functions of the others."""
    exchange = called(FlareSite(), "ada", workspace(tmp_path / "ada"), caller="mallory")
    assert exchange(*HELLO) == {"refused": "only the server may call"}


def test_a_site_whose_log_is_sent_to_the_server_refuses(tmp_path: Path) -> None:
    """FLARE does so unless it is told not to, and the log has what training raises."""
    exchange = called(FlareSite(), "ada", workspace(tmp_path / "ada", streaming=True))
    assert "allow_log_streaming" in exchange(*HELLO)["refused"]
    bare = workspace(tmp_path / "bare")
    (bare / "local" / "resources.json").unlink()
    assert "allow_log_streaming" in called(FlareSite(), "ada", bare)(*HELLO)["refused"]


def test_a_site_with_an_identity_needs_a_journal(tmp_path: Path) -> None:
    write_consortium(tmp_path / "keys", 5)
    files = identity_files(tmp_path / "keys")
    without = "".join(line for line in files.splitlines(keepends=True) if not line.startswith("journal"))
    refused = called(FlareSite(), "client-0", workspace(tmp_path / "a", TRAIN + without))(*HELLO)["refused"]
    assert "no journal" in refused
    only = TRAIN + next(line for line in files.splitlines() if line.startswith("key"))
    assert "belong together" in called(FlareSite(), "client-0", workspace(tmp_path / "b", only))(*HELLO)["refused"]


def test_a_site_with_an_identity_hears_the_pinned_server_only(tmp_path: Path) -> None:
    """Whoever holds FLARE's server has no key of the consortium."""
    keys = tmp_path / "keys"
    write_consortium(keys, 5)
    exchange = called(FlareSite(), "client-0", workspace(tmp_path / "a", TRAIN + identity_files(keys)))
    write_consortium(tmp_path / "other", 5)
    mallory = flower_app.credentials_of({"keys": str(tmp_path / "other")})
    assert "malformed" in exchange("hello", hello_frame(None)[1])["refused"]
    assert "is not by its registered key" in exchange("hello", hello_frame(mallory)[1])["refused"]


def test_a_site_that_is_busy_refuses_a_second_message(tmp_path: Path) -> None:
    site, begun, over = FlareSite(), threading.Event(), threading.Event()

    class Slow:
        def handle(self, stage: str, frame: bytes) -> bytes:
            begun.set()
            over.wait(30)
            return b"late"

    site._endpoint = Slow()  # type: ignore[assignment]
    exchange = called(site, "ada", workspace(tmp_path / "ada"))
    first = threading.Thread(target=exchange, args=HELLO)
    first.start()
    begun.wait(30)
    assert exchange(*HELLO) == {"refused": "still busy with an earlier message"}
    over.set()
    first.join(30)
    assert exchange(*HELLO) == {"frame": b"late"}


def test_of_an_error_that_nobody_expects_only_the_kind_leaves_the_site(tmp_path: Path) -> None:
    site = FlareSite()

    class Broken:
        def handle(self, stage: str, frame: bytes) -> bytes:
            raise KeyError("patient 4711")

    site._endpoint = Broken()  # type: ignore[assignment]
    refused = called(site, "ada", workspace(tmp_path / "ada"))(*HELLO)["refused"]
    assert refused == "failed with KeyError; the log of its job says more"


@pytest.mark.parametrize("local", [None, 'train = "nowhere:train"'])
def test_a_site_that_is_not_set_up_says_so_at_every_message_and_is_right_once_it_is(
    tmp_path: Path, local: str | None
) -> None:
    folder = workspace(tmp_path / "ada", local or "")
    exchange = called(FlareSite(), "ada", folder)
    assert "fedgt.toml" in exchange(*HELLO)["refused"] or "no program" in exchange(*HELLO)["refused"]
    (folder / "local" / "fedgt.toml").write_text(TRAIN)
    assert "frame" in exchange(*HELLO)


# The transport ----------------------------------------------------------------------------------------------------------


def over(answers: Mapping[str, Callable[[str, bytes], Any]], timeout: float = 5.0) -> dict[str, bytes | Failure]:
    """One exchange with sites that say who they are, and then answer so."""
    sites = {name: FlareSite() for name in answers}
    there = [Proxy(name, sites_answer(name, answer)) for name, answer in answers.items()]
    transport = FlareTransport(there, list(sites), patience=5.0)
    transport.meet()
    return transport.exchange("keys", dict.fromkeys(sites, b"frame"), timeout)


def sites_answer(name: str, answer: Callable[[str, bytes], Any]) -> Callable[[str, bytes], Any]:
    from fedgt.engine.hello import read_hello, signed_hello

    def exchange(stage: str, frame: bytes) -> Any:
        if stage != "hello":
            return answer(stage, frame)
        question = read_hello(frame, client=name, credentials=None)
        return {"frame": signed_hello(question, client=name, credentials=None)}

    return exchange


def raising(error: Exception) -> Callable[[str, bytes], Any]:
    def answer(stage: str, frame: bytes) -> Any:
        raise error

    return answer


def test_what_a_site_answers_is_a_frame_or_a_failure() -> None:
    hang = threading.Event()
    found = over(
        {
            "a": lambda stage, frame: {"frame": frame + b"!"},
            "b": lambda stage, frame: {"refused": "not today\x1b[31m"},
            "c": lambda stage, frame: {"frame": "text"},
            "d": lambda stage, frame: [b"frame"],
            "e": raising(RuntimeError("the tunnel fell in")),
            "f": lambda stage, frame: hang.wait(30),
            "g": lambda stage, frame: {"refused": 3},
        },
        timeout=0.5,
    )
    hang.set()
    assert found.pop("a") == b"frame!"
    reasons = {name: answer.reason for name, answer in found.items() if isinstance(answer, Failure)}
    assert set(reasons) == set("bcdefg")
    assert reasons["b"].startswith("not today")
    assert "\x1b" not in reasons["b"]
    assert reasons["c"] == reasons["d"] == reasons["g"] == "its answer is neither a frame nor a refusal"
    assert reasons["e"] == "RuntimeError of its site: the tunnel fell in"
    assert reasons["f"] == "timeout: no reply within 0.5 s"


def test_all_sites_work_at_once() -> None:
    gate = threading.Barrier(3, timeout=30)

    def together(stage: str, frame: bytes) -> Any:
        gate.wait()
        return {"frame": frame}

    assert over(dict.fromkeys("abc", together)) == dict.fromkeys("abc", b"frame")


def test_a_client_without_a_site_is_a_failure(tmp_path: Path) -> None:
    transport = FlareTransport(proxies(tmp_path, {"clients": 2}), ["client-0", "client-7"], patience=5.0)
    assert transport.meet() == ("client-0",)
    assert "client 'client-1' is not registered" in transport.roster.refused["client-1"]
    found = transport.exchange("keys", {"client-7": b""}, 5.0)
    assert found == {"client-7": Failure(client="client-7", reason="no site of this client is connected")}


def test_two_sites_of_one_name_take_no_part(tmp_path: Path) -> None:
    there = proxies(tmp_path, {"clients": 2}, TRAIN + 'client = "ada"\n')
    transport = FlareTransport(there, ["ada"], patience=5.0)
    assert transport.meet() == ()
    assert "all say that they are client 'ada'" in transport.roster.refused["client-0"]


def test_a_job_that_is_aborted_ends_the_run() -> None:
    """FLARE raises this at the caller. It is nobody's failure: a run that went on would open sums of whoever is left."""
    site = Proxy("a", sites_answer("a", lambda stage, frame: {"frame": frame}))
    transport = FlareTransport([site], ["a"], patience=5.0)
    transport.meet()
    site._call = lambda *_: (_ for _ in ()).throw(RunAborted("run is aborted"))  # type: ignore[method-assign]
    with pytest.raises(RunAborted):
        transport.exchange("keys", {"a": b""}, 5.0)


# A job ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "../winter", "-w", "winter/2"])
def test_a_job_has_a_name_that_is_a_folder(name: str) -> None:
    with pytest.raises(SpecError, match="letters, digits"):
        FlareJob(name)


def test_a_configuration_is_numbers_and_texts() -> None:
    with pytest.raises(SpecError, match="steps is neither"):
        FlareJob("winter", config={"steps": [1, 2]})  # type: ignore[dict-item]


def test_a_simulation_needs_both_programs_and_a_new_folder(tmp_path: Path) -> None:
    local = tmp_path / "fedgt.toml"
    local.write_text(TRAIN)
    with pytest.raises(SpecError, match="does not say what runs here: main"):
        FlareJob("winter").simulate(["ada", "bob"], local=local, workspace=tmp_path / "new")
    local.write_text(TRAIN + 'main = "flare_app:main"')
    with pytest.raises(SpecError, match="is not empty"):
        FlareJob("winter").simulate(["ada", "bob"], local=local, workspace=tmp_path)
