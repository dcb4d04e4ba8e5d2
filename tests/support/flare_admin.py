"""The administrator of a FLARE deployment, in a process of its own: FLARE's threads trip over the warnings of a test.

A JSON list [command, argument] a line comes in, a JSON object with "answer" or "error" goes out. Its line has a mark: FLARE
prints, too.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

MARK = "answer:"


def commands(kit: str) -> dict[str, Callable[[str], Any]]:
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    session = new_secure_session("admin@fedgt.org", kit, timeout=60.0)
    return {
        "submit": session.submit_job,
        "status": lambda job: session.get_job_meta(job)["status"],
        "log of": session.tail_target_log,
    }


def main(kit: str) -> None:
    known: dict[str, Callable[[str], Any]] = {}
    for line in sys.stdin:
        name, argument = json.loads(line)
        told: dict[str, Any] = {}
        for _ in range(2):  # the server may have been started again since
            try:
                known = known or commands(kit)
                told = {"answer": known[name](argument)}
                break
            except Exception as error:
                known, told = {}, {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"\n{MARK}{json.dumps(told)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
