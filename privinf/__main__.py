"""``python -m privinf``: the command line."""

from privinf.cli import main

main(prog_name="privinf")
