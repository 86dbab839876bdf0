"""`python -m draftproof`, for where the installed program is not on PATH."""

from draftproof.cli.main import main

main()
