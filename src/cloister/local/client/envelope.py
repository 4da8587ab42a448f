"""The device puts its reports into envelopes."""

from cloister.local.base.oracle import Reports
from cloister.local.client.wire import encode
from cloister.local.survey.envelope import ID_BYTES, check_question, pack, text_of
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["seal"]


def seal(question: str, reports: Reports, source: Source | None = None) -> list[bytes]:
    """One envelope for each report, ready to be sent.

    Args:
        question: the id of the question that was answered.
        reports: what `perturb` returned.
        source: where ids come from; the operating system unless given. A seeded one marks the envelopes, as seeded
            reports do.

    Privacy: an envelope tells which question was answered at which level, and that somebody did; about the answer it
        tells the report and nothing more. Its id is random, so that two answers of one person are not linked by it.
    """
    drawn_from = source or SYSTEM
    private = reports.private and drawn_from.private
    before, between, after = text_of(check_question(question), reports.mechanism.describe(), private)
    ids = drawn_from.bytes(ID_BYTES * len(reports))
    return [
        b"".join((before, pack(ids[start : start + ID_BYTES]).encode(), between, pack(row.tobytes()).encode(), after))
        for start, row in zip(range(0, len(ids), ID_BYTES), encode(reports), strict=True)
    ]
