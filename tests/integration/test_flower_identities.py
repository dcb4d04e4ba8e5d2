"""Sites with long-term identities over Flower: who may take part, and what a suspended state may be used for."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import Context, Message

import flower_app as app
from fedgt.flower import FedGT, InProcessGrid, Site, client_app
from fedgt.secagg import ClientPolicy, Credentials, Identity, Registry, add_to_registry, write_private_key
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


def signed(strategy: FedGT, credentials: Credentials) -> FedGT:
    return FedGT(
        grouping=strategy.grouping,
        privacy=strategy.privacy,
        validation=strategy.validation,
        screen=strategy.screen,
        decoding=strategy.decoding,
        rounds=2,
        samples=strategy.samples,
        wait=0.0,
        timeout=20.0,
        config=CONFIG,
        credentials=credentials,
    )


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
    rounds = list(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
    plain = played(InProcessGrid(app.client, nodes(), CONFIG), rounds=2)
    assert [app.digest(one.parameters) for one in rounds] == [app.digest(one.parameters) for one in plain]
    assert set(rounds[0].refused) == {777, 778}
    assert "client-5" in rounds[0].connected


def test_with_identities_there_are_four_round_trips_a_round(tmp_path: Path) -> None:
    credentials = consortium(tmp_path)
    grid = InProcessGrid(app.client, keyed(tmp_path), CONFIG)
    pushed = trips(grid)
    list(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
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
    next(signed(app.federation(CONFIG), credentials).start(grid, app.initial()))
    assert len(copies) == 1


def test_a_policy_of_a_site_is_obeyed_whatever_the_server_plans(tmp_path: Path) -> None:
    def strict(context: Context) -> Site:
        policy = ClientPolicy(minimum_group_size=5) if context.node_config["partition-id"] == 5 else None
        return Site(client=f"client-{context.node_config['partition-id']}", policy=policy)

    grid = InProcessGrid(client_app(app.train, site=strict), nodes(), CONFIG)
    (only,) = played(grid, rounds=1, privacy=3)
    reasons = [record.dropped["client-5"] for record in only.result.records if "client-5" in record.dropped]
    assert len(reasons) == 3
    assert all("minimum of 5" in reason for reason in reasons)


def test_a_restart_with_identities_goes_on_with_the_account_and_the_agreements(tmp_path: Path) -> None:
    """A server that has lost the agreements opens nothing: its clients remember what they signed."""
    strategy = signed(app.federation(CONFIG), consortium(tmp_path))
    whole = list(strategy.start(InProcessGrid(app.client, keyed(tmp_path), CONFIG), app.initial()))
    for kept in (True, False):
        folder = tmp_path / f"server-{kept}"
        server = dataclasses.replace(strategy, agreements=folder / "agreements")
        sites = tmp_path / f"sites-{kept}"
        sites.mkdir()
        places = {node: config | {"fedgt-journal": str(sites / str(node))} for node, config in keyed(tmp_path).items()}
        grid = InProcessGrid(app.client, places, CONFIG)
        first = next(server.start(grid, app.initial(), ledger=tmp_path / f"account-{kept}"))
        again = server if kept else dataclasses.replace(strategy, agreements=folder / "lost")
        (second,) = again.start(
            grid, first.parameters, begin=2, excluded=first.excluded, ledger=tmp_path / f"account-{kept}"
        )
        (record,) = second.result.records
        if kept:
            assert record.status == "open"
            assert app.digest(second.parameters) == app.digest(whole[-1].parameters)
        else:
            assert record.status == "erased"
            assert app.digest(second.parameters) == app.digest(first.parameters)
