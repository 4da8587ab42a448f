"""multi-freq-ldpy and pure-ldp, in an environment of their own: seconds for a million people and 1,024 values.

Both draw one report a call, so a smaller number of people is timed and scaled; compilation is not counted.
"""

import sys
import time
from collections.abc import Callable

from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

DOMAIN, EPSILON, MILLION = 1024, 1.0, 1_000_000


def scaled(people: int, answer: Callable[[int], object]) -> float:
    answer(1)
    start = time.perf_counter()
    for person in range(people):
        answer(1 + person % (DOMAIN - 1))
    return MILLION / people * (time.perf_counter() - start)


def main(people: int) -> list[str]:
    clients = {
        "multi-freq-ldpy GRR": lambda value: GRR_Client(value, DOMAIN, EPSILON),
        "multi-freq-ldpy OUE": lambda value: UE_Client(value, DOMAIN, EPSILON, True),
        "multi-freq-ldpy OLH": lambda value: LH_Client(value, DOMAIN, EPSILON, True),
    }
    for name, client, server in (
        ("pure-ldp OUE", UEClient(EPSILON, DOMAIN, use_oue=True), UEServer(EPSILON, DOMAIN, use_oue=True)),
        ("pure-ldp OLH", LHClient(EPSILON, DOMAIN, use_olh=True), LHServer(EPSILON, DOMAIN, use_olh=True)),
    ):
        clients[f"{name}, counted too"] = lambda value, client=client, server=server: server.aggregate(
            client.privatise(value)
        )
    return [
        f"{name}: {scaled(people, answer):,.0f} s a million, scaled from {people:,} (epsilon 1, domain 1024)."
        for name, answer in clients.items()
    ]


if __name__ == "__main__":
    print("\n".join(main(int(sys.argv[1]))))
