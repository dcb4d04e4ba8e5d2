"""Sites with long-term identities over Flower: who may take part, and what a suspended state may be used for."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message

import flower_app as app
from fedgt.federation import FederationRun
from fedgt.flower import FlowerTransport, InProcessGrid, Site, client_app, inputs_of
from fedgt.privacy import Ledger
from fedgt.secagg import (
    AgreementLog,
    ClientPolicy,
    Credentials,
    Identity,
    Registry,
    add_to_registry,
    write_private_key,
)
from flower_grid import CONFIG, NAMES, nodes, played, trips


def consortium(folder: Path) -> Credentials:
    server = Identity.generate("server")
    registry = folder / "consortium.toml"
    add_to_registry(registry, server, server=True)
    keys = {}
    for name in NAMES:
        identity = Identity.generate(name)
        add_to_registry(registry, identity, server=False)
        write_private_key(folder / f"{name}.pem", identity)
        (folder / "policy.toml").write_text("privacy = 4\n")
        keys[name] = identity.public
    return Credentials(identity=server, registry=Registry(server=server.public, clients=keys))


def signed(grid: InProcessGrid, credentials: Credentials, **changes: Any) -> tuple[FlowerTransport, FederationRun]:
    transport = FlowerTransport(grid, NAMES, credentials=credentials, wait=0.0)
    run = {**app.options(CONFIG), "credentials": credentials, "inputs": inputs_of(CONFIG)}
    return transport, FederationRun(transport, **(run | changes))


def keyed(folder: Path, count: int = 15, *, journal: bool = True) -> dict[int, dict[str, Any]]:
    return {
        node: config
        | {
            "fedgt-key": str(folder / f"client-{config['partition-id']}.pem"),
            "fedgt-registry": str(folder / "consortium.toml"),
            "fedgt-policy": str(folder / "policy.toml"),
        }
        | ({"fedgt-journal": str(folder / f"rounds-{node}")} if journal else {})
        for node, config in nodes(count).items()
    }


def test_identities_change_no_number_and_impostors_are_turned_away(tmp_path: Path) -> None:
    credentials = consortium(tmp_path)
    impostor = keyed(tmp_path)[105] | {"fedgt-key": str(tmp_path / "client-6.pem"), "fedgt-client": "client-5"}
    unsigned = {"partition-id": 5}
    grid = InProcessGrid(app.client, keyed(tmp_path, journal=True) | {777: impostor, 778: unsigned}, CONFIG)
    transport, run = signed(grid, credentials)
    rounds = list(run.rounds(app.initial()))
    plain = played(InProcessGrid(app.client, nodes(), CONFIG), rounds=2)
    assert [app.digest(one.parameters) for one in rounds] == [app.digest(one.parameters) for one in plain]
    assert set(transport.roster.refused) == {777, 778}
    assert "client-5" in rounds[0].members


@pytest.mark.slow
def test_with_identities_there_are_four_round_trips_a_round(tmp_path: Path) -> None:
    credentials = consortium(tmp_path)
    grid = InProcessGrid(app.client, keyed(tmp_path), CONFIG)
    pushed = trips(grid)
    list(signed(grid, credentials)[1].rounds(app.initial()))
    stages = ["query.fedgt_begin", "train.fedgt_masked", "query.fedgt_agree", "query.fedgt_finish"]
    assert [kind for kind, _ in pushed] == ["query.fedgt_hello", *stages, *stages]


def test_a_state_that_is_used_a_second_time_is_refused(tmp_path: Path) -> None:
    """Two processes with one context could open a client alone: one releases the share for alive, one for dropped."""
    credentials = consortium(tmp_path)
    copies: list[Any] = []

    def replayed(message: Message, context: Context) -> Message:
        if context.node_id == 105 and message.metadata.message_type == "query.fedgt_finish":
            before = dict(context.state.items())
            reply = app.client(message, context)
            context.state.update(before)
            with pytest.raises(Exception, match="used already") as caught:
                app.client(message, context)
            copies.append(caught)
            return reply
        return app.client(message, context)

    grid = InProcessGrid(replayed, keyed(tmp_path, journal=True), CONFIG)
    next(signed(grid, credentials)[1].rounds(app.initial()))
    assert len(copies) == 1


def test_a_policy_of_a_site_is_obeyed_whatever_the_server_plans(tmp_path: Path) -> None:
    def strict(context: Context) -> Site:
        policy = ClientPolicy(minimum_group_size=5) if context.node_config["partition-id"] == 5 else None
        return Site(client=f"client-{context.node_config['partition-id']}", policy=policy)

    grid = InProcessGrid(client_app(app.train, site=strict), nodes(), CONFIG)
    (only,) = played(grid, CONFIG | {"rounds": 1, "privacy": 3})
    reasons = [record.dropped["client-5"] for record in only.result.records if "client-5" in record.dropped]
    assert len(reasons) == 3
    assert all("minimum of 5" in reason for reason in reasons)


@pytest.mark.slow
def test_a_restart_with_identities_goes_on_with_the_account_and_the_agreements(tmp_path: Path) -> None:
    """A server that has lost the agreements opens nothing: its clients remember what they signed."""
    credentials = consortium(tmp_path)
    _, undisturbed = signed(
        InProcessGrid(app.client, keyed(tmp_path), CONFIG), credentials, validation=None, grouping=None
    )
    whole = list(undisturbed.rounds(app.initial()))
    for kept in (True, False):
        sites = tmp_path / f"sites-{kept}"
        sites.mkdir()
        places = {node: config | {"fedgt-journal": str(sites / str(node))} for node, config in keyed(tmp_path).items()}
        grid = InProcessGrid(app.client, places, CONFIG)

        def server(place: str, *, begun: bool, grid: InProcessGrid = grid, sites: Path = sites) -> FederationRun:
            account = Ledger.kept_in(sites / "account", clients=NAMES, promised=4, colluders=1, begun=begun)
            log = AgreementLog(credentials.registry, sites / place)
            _, run = signed(grid, credentials, ledger=account, agreements=log, validation=None, grouping=None)
            return run

        first = next(server("agreements", begun=False).rounds(app.initial()))
        again = server("agreements" if kept else "lost", begun=True)
        again.begin(first.parameters, after=1)
        coming = again.coming()
        assert coming is not None
        second = again.hold(coming)
        (record,) = second.result.records
        if kept:
            assert record.status == "open"
            assert app.digest(second.parameters) == app.digest(whole[-1].parameters)
        else:
            assert record.status == "erased"
            assert app.digest(second.parameters) == app.digest(first.parameters)
