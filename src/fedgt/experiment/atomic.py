"""Files that are there as a whole or not at all."""

from pathlib import Path

from fedgt.text_file import writing


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that whoever reads it meets the old content or the new, never half of it.

    A process that is killed leaves the old file. Nothing is flushed to the disk: after a power cut a file may be damaged,
    which its reader must notice.
    """
    new = path.with_name(f".{path.name}.new")
    with writing(path):
        new.write_bytes(content)
        new.replace(path)
