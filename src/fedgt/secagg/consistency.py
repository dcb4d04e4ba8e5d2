"""Does every client give one vector to all its groups? The answers to the challenge must fit the opened sums.

With a_gi the coefficient of client i in group g, z_i its answer, S_g the opened sum as whole numbers and R_g the opened pad:

    sum over i of a_gi z_i = <c, S_g> + R_g    for every opened group g, modulo the prime.

The answer of a client that fell silent is an unknown. If the equations can be solved, the sums are those of some vectors of
the members, the same in all groups, whoever works together; a lie passes with probability 2^-47 at most. A client that is
in one opened group only is not checked. See decision 0021 and docs/secure-aggregation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedgt.secagg.field import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """What one opened group says.

    Attributes:
        coefficients: Client -> a_gi, of the members of the sum.
        value: <c, S_g> + R_g.
    """

    coefficients: Mapping[str, int]
    value: int


def misfits(field: Field, equations: Mapping[int, Equation], answers: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """The sets of groups that contradict each other; each group is in one of them at most, and most honest rounds have none.

    A smallest set of equations that cannot be solved together has a liar among the members of its groups, and nothing
    says in which. So all groups of all smallest sets are at fault together. They are found without looking at any set: put
    the right-hand side beside the coefficients of the unknowns as one more element. The smallest sets are the circuits of
    this matroid through that element, and their union is its connected component (Oxley 2011, Matroid Theory, 4.1).

    With all answers known every equation stands for itself: those that do not hold are one set each.

    Args:
        field: The field of the plan.
        equations: Group -> what it says, of the opened groups.
        answers: Client -> its answer, of those that have given one.

    Returns:
        Group numbers, ascending; the sets do not overlap.
    """
    silent = sorted({client for one in equations.values() for client in one.coefficients} - set(answers))
    rest = {
        group: (one.value - sum(a * answers.get(client, 0) for client, a in one.coefficients.items())) % field.prime
        for group, one in equations.items()
    }
    alone = [(group,) for group, one in equations.items() if not set(one.coefficients) & set(silent) and rest[group]]
    mixed = [group for group, one in equations.items() if set(one.coefficients) & set(silent)]
    rows = [[equations[group].coefficients.get(client, 0) for client in silent] + [rest[group]] for group in mixed]
    rows.append([0] * len(silent) + [1])
    together = [mixed[row] for row in _component(field, rows, len(mixed)) if row < len(mixed)]
    return tuple(sorted(alone + ([tuple(sorted(together))] if together else [])))


def _component(field: Field, rows: Sequence[Sequence[int]], start: int) -> set[int]:
    """The rows that are in a smallest linearly dependent set together with row `start`, and `start` itself.

    They are connected to it in the graph that joins each row outside a basis with the rows of the basis that it depends on.
    """
    basis, depends = _dependences(field, rows)
    neighbours: dict[int, set[int]] = {row: set() for row in range(len(rows))}
    for row, on in depends.items():
        for other in on:
            neighbours[row].add(basis[other])
            neighbours[basis[other]].add(row)
    found, todo = {start}, [start]
    while todo:
        for other in neighbours[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


def _dependences(field: Field, rows: Sequence[Sequence[int]]) -> tuple[list[int], dict[int, list[int]]]:
    """Rows that form a basis, and for every other row the positions in the basis of those that add up to it.

    Gaussian elimination in the field, with a record of which rows each remainder was made from.
    """
    prime = field.prime
    basis: list[int] = []
    reduced: list[tuple[int, list[int], dict[int, int]]] = []  # pivot column, row with 1 there, made from
    depends: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        left = [value % prime for value in row]
        made: dict[int, int] = {}
        for pivot, known, origin in reduced:
            if factor := left[pivot]:
                left = [(a - factor * b) % prime for a, b in zip(left, known, strict=True)]
                for position, value in origin.items():
                    made[position] = (made.get(position, 0) + factor * value) % prime
        column = next((column for column, value in enumerate(left) if value), None)
        if column is None:
            depends[number] = [position for position, value in made.items() if value]
            continue
        scale = pow(left[column], -1, prime)
        made = {position: -scale * value % prime for position, value in made.items()}
        made[len(basis)] = scale
        reduced.append((column, [value * scale % prime for value in left], made))
        basis.append(number)
    return basis, depends
