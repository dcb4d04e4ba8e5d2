"""`python -m fedgt` is the command `fedgt`."""

from fedgt.cli import main

main()
