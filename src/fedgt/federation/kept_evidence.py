"""What the tests of a run compared, kept so that anybody who may read the folder can decide once more.

No sum and no model is in it: scalar products of the differences of group means, losses, and margins or outputs on the
server's validation data, and how alike its classes are. It says about clients what the verdicts say, and belongs to those
who may read these.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from fedgt._version import __version__
from fedgt.durable_file import write_durably
from fedgt.errors import SpecError
from fedgt.evidence import STORED
from fedgt.federation.state import RunState, Step
from fedgt.packed import label_of, pack, unpack
from fedgt.text_file import read_content
from fedgt.types import SetEvidence

FILE = "evidence.npz"

_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptTest:
    """One test round.

    Attributes:
        round: Its number.
        clients: The columns of the evidence.
        evidence: What it adds; None where nothing could be compared.
        faults: Sets of clients with at least one in each that has broken the rules of the sums, until then.
        judged: Whose last verdict it gave.
        together: The rounds of the tests that it was judged together with, and its own at the end; empty where it was judged
            by itself.
        columns: Of the evidence that it adds to theirs.
        added: That evidence; None where it is `evidence`.
    """

    round: int
    clients: tuple[str, ...]
    evidence: SetEvidence | None
    faults: tuple[frozenset[str], ...]
    judged: frozenset[str]
    together: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    added: SetEvidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptEvidence:
    """All tests of a run with graded evidence, in the order in which they were held."""

    tests: tuple[KeptTest, ...]


_CLASSES = (KeptEvidence, KeptTest, *STORED)


def keep_test(folder: Path, step: Step, state: RunState) -> None:
    """Add the test of a round to what the folder holds; nothing of a round without one, or with one bit a group.

    Raises:
        SpecError: If what is there is damaged, or of another version.
    """
    screening = step.screening
    tested = screening is not None and screening.measured.clean is None
    if not tested and not step.verdicts:
        return
    by_test = {} if screening is None else {one.client: one.reason for one in screening.exclusion.verdicts}
    here = frozenset(one.client for one in step.verdicts if by_test.get(one.client) == one.reason)
    before = read_kept(folder)
    # Whoever has a new verdict, of a later test or of the faults of the sums, is no longer judged by an earlier test.
    tests = [
        replace(one, judged=one.judged - {verdict.client for verdict in step.verdicts})
        for one in (() if before is None else before.tests)
        if one.round < step.round
    ]
    if screening is not None and tested:
        several = screening.open_tests
        joined = several is not None and several.rounds[-1] == step.round
        tests.append(
            KeptTest(
                round=step.round,
                clients=screening.grouping.clients,
                evidence=screening.measured.evidence,
                faults=state.suspicions.missing,
                judged=here,
                together=several.rounds if several is not None and joined and len(several.rounds) > 1 else (),
                columns=several.clients if several is not None and joined else (),
                added=several.evidence[-1]
                if several is not None and joined and several.evidence[-1] is not screening.measured.evidence
                else None,
            )
        )
    if tests:
        content = pack(KeptEvidence(tests=tuple(tests)), _CLASSES, label=__version__)
        write_durably(folder / FILE, content, sync=False)


def read_kept(folder: Path) -> KeptEvidence | None:
    """What the folder holds; None where it holds nothing of this kind.

    Raises:
        SpecError: If it is damaged, or of another version.
    """
    path = folder / FILE
    if not path.exists():
        return None
    content = read_content(path, "evidence", largest=_LARGEST)
    version = label_of(content)
    if version != __version__:
        raise SpecError(f"{path}: written by fedgt {version}, this is {__version__}: take that version")
    found = unpack(content, _CLASSES)
    if not isinstance(found, KeptEvidence):
        raise SpecError(f"{path}: no evidence of a run")
    return found
