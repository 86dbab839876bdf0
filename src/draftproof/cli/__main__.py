"""`python -m draftproof.cli`, for where the installed program is not on PATH."""

from draftproof.cli.main import main

main()
