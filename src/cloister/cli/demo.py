"""`cloister demo`: a tour in the terminal."""

import click

__all__ = ["demo"]


@click.command()
def demo() -> None:
    """Walk through private answers, a refusal, the ledger and a receipt on a generated hospital."""
    from cloister.lessons.tour import tour

    tour()
