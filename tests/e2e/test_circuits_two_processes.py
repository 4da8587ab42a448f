"""Garbler and evaluator as two programs that meet at a TCP port."""

import subprocess
import sys
import textwrap

from cloister.privacy.signing import SigningKey

PARTY = """
    import socket, sys
    from cloister.privacy.errors import CloisterError
    from cloister.privacy.signing import PublicKey, SigningKey
    from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, Channel, CircuitBuilder, Evaluator, Garbler

    role, key, peer, value = sys.argv[1:5]
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=32, shape=(4,))
    y = build.input("y", EVALUATOR, width=32, shape=(4,))
    build.output("dot", x.dot(y), to=BOTH)
    build.output("mean", x.sum().divide(y.sum(), fraction=8), to=EVALUATOR)
    circuit = build.circuit()
    numbers = [int(part) for part in value.split(",")]
    try:
        if role == "garbler":
            with socket.create_server(("127.0.0.1", 0)) as server:
                print(server.getsockname()[1], flush=True)
                server.settimeout(20)
                stream, _ = server.accept()
            with Channel.open(stream, SigningKey.load(key), peer=PublicKey.load(peer), first=True) as channel:
                print(Garbler(channel).run(circuit, {"x": numbers}))
        else:
            stream = socket.create_connection(("127.0.0.1", int(sys.argv[5])), timeout=20)
            with Channel.open(stream, SigningKey.load(key), peer=PublicKey.load(peer), first=False) as channel:
                print(Evaluator(channel).run(circuit, {"y": numbers}))
    except CloisterError as error:
        print(error)
        sys.exit(1)
"""


def run(folder, evaluators_key="evaluator"):
    script = folder / "party.py"
    script.write_text(textwrap.dedent(PARTY), encoding="utf-8")
    for name in ("garbler", "evaluator", "stranger"):
        if not (folder / name).exists():
            key = SigningKey.create(folder / name)
            (folder / f"{name}.public").write_text(str(key.public), encoding="ascii")

    def start(role, key, peer, *rest):
        command = [sys.executable, script, role, folder / key, folder / f"{peer}.public", *rest]
        return subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    with start("garbler", "garbler", "evaluator", "3,-1,4,1") as garbler:
        port = garbler.stdout.readline().strip()
        with start("evaluator", evaluators_key, "garbler", "2,7,-1,8", port) as evaluator:
            evaluators = evaluator.communicate(timeout=60)
            garblers = garbler.communicate(timeout=60)
    return (garbler.returncode, *garblers), (evaluator.returncode, *evaluators)


def test_two_processes_compute_and_each_reads_its_outputs(tmp_path):
    garbler, evaluator = run(tmp_path)
    assert garbler == (0, "{'dot': 3}\n", "")
    assert evaluator == (0, "{'dot': 3, 'mean': Fraction(7, 16)}\n", "")


def test_a_stranger_gets_one_sentence_and_nothing_else(tmp_path):
    garbler, evaluator = run(tmp_path, evaluators_key="stranger")
    assert garbler[0] == evaluator[0] == 1
    assert garbler[1].startswith("CLO-305: the peer does not hold the key that was pinned for it.")
    assert garbler[2] == evaluator[2] == ""
