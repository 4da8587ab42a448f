"""A device need not carry a collector, nor a collector a device."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("half", "other"), [("client", "collector"), ("collector", "client")])
def test_each_half_is_importable_alone_and_works(half: str, other: str) -> None:
    work = {
        "client": "reports = client.perturb(m, 3); assert client.encode(reports).shape == (1, 1)",
        "collector": "c = collector.aggregate(m, [b'\\x03', b'\\x63']); assert (c.n, c.refused) == (1, 1); "
        "collector.estimate(m, c).projected()",
    }[half]
    code = (
        "import sys\n"
        f"from cloister.local import {half}\n"
        "from cloister.local.base.oracle import epsilon\n"
        "from cloister.local.mechanisms.direct import DirectEncoding\n"
        "m = DirectEncoding.for_loss(14, epsilon(1))\n"
        f"{work}\n"
        f"assert not [name for name in sys.modules if name.startswith('cloister.local.{other}')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
