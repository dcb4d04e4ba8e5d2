"""Into which stages the groups of a plan are divided, and the question of each (decision 0026)."""

from collections.abc import Sequence

from fedgt.errors import SpecError

_MOST = 16


def require_stages(groups: Sequence[Sequence[str]], stages: Sequence[int], challenges: Sequence[str]) -> None:
    """Check the stages of a plan.

    Args:
        groups: All of its groups.
        stages: How many of them each stage opens, in order.
        challenges: Per stage the hash of its question; empty if none is asked.

    Raises:
        SpecError: If they do not divide the groups, somebody is in a later stage only, or a stage has no own question.
    """
    least = 1 if len(stages) > 1 else 0
    whole = all(type(count) is int and count >= least for count in stages)
    if not whole or sum(stages) != len(groups) or len(stages) > _MOST:
        raise SpecError(
            f"stages of {list(stages)!s:.80} groups; at most {_MOST} positive numbers that add up to {len(groups)} are "
            "needed"
        )
    first = {client for group in groups[: stages[0]] for client in group}
    if strangers := sorted({client for group in groups for client in group} - first):
        raise SpecError(
            f"{', '.join(strangers[:8])} is in a later stage only: everybody needs a group of the first, where vectors are "
            "fixed"
        )
    for challenge in challenges:
        if not is_digest(challenge):
            raise SpecError(f"challenge {challenge!r:.80} is no SHA-256; 64 hexadecimal digits are needed")
    # A seed that was shown in one stage would be known before the vectors of another.
    if challenges and not len(set(challenges)) == len(challenges) == len(stages):
        raise SpecError(f"{len(challenges)} challenges; each of the {len(stages)} stages needs one of its own")


def is_digest(value: object) -> bool:
    """Whether this is a SHA-256 in hexadecimal digits."""
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")
