"""A survey on a hub, for its author.

survey = hub.create_survey("sleep-2026", title="Sleep", purpose="…", consent="…", asked=[{…}, {…}])
survey.publish()                       # its questions are fixed from now on
survey.invite(200)                     # 200 links, shown once, if only the invited may answer
print(survey.results()["smoker"])      # shares with their intervals
survey.collection().estimate("sleep-2026.smoker")     # the same, computed here from the reports
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from cloister.client.survey_wire import ANALYSIS, SurveyFound, collection_of, results_from_json, verify_receipt
from cloister.privacy.errors import ReceiptRejected

if TYPE_CHECKING:
    from cloister.client.client import Client
    from cloister.local import Collection

__all__ = ["RemoteSurvey"]


class RemoteSurvey:
    """A survey of one's own on a hub."""

    def __init__(self, client: "Client", name: str) -> None:
        self.client = client
        self.name = name
        self._path = f"/api/surveys/{quote(str(name), safe='')}"

    @property
    def facts(self) -> dict[str, Any]:
        """Return all facts: title, state, wave, number of answers, its link, its questions."""
        return self.client.get(self._path)

    @property
    def link(self) -> str:
        """Return the address where people answer."""
        return str(self.facts["link"])

    def change(self, **facts: Any) -> dict[str, Any]:
        """Change a draft: title, about, purpose, consent, language, target, ends, invited, lasting, asked."""
        reply: dict[str, Any] = self.client.transport.json("PUT", self._path, facts)
        return reply

    def publish(self) -> dict[str, Any]:
        """Open the survey. Its questions and mechanisms are fixed from then on."""
        return self.client.post(f"{self._path}/publish", {})

    def close(self) -> dict[str, Any]:
        """Stop accepting answers, permanently."""
        return self.client.post(f"{self._path}/close", {})

    def next_wave(self) -> dict[str, Any]:
        """Ask the same people again."""
        return self.client.post(f"{self._path}/wave", {})

    def invite(self, count: int) -> list[str]:
        """Create links, one for each person. They are shown once: the hub keeps only their hashes."""
        reply = self.client.post(f"{self._path}/invitations", {"count": count})
        return [str(link) for link in reply["links"]]

    def results(self, wave: int = 0) -> SurveyFound:
        """Return the results: of the newest wave unless one is named. They are not signed; `receipt` is."""
        return results_from_json(self.client.get(f"{self._path}/results?{urlencode({'wave': wave})}"))

    def cross(self, first: str, second: str, wave: int = 0) -> dict[str, Any]:
        """Return the joint distribution of the answers to two questions, from matched reports."""
        words = urlencode({"first": first, "second": second, "wave": wave})
        return self.client.get(f"{self._path}/cross?{words}")

    def reports(self, wave: int = 0) -> dict[str, Any]:
        """Return all reports of a wave, without names, ordered by a hash. The export is written to the audit log."""
        return self.client.get(f"{self._path}/reports?{urlencode({'wave': wave})}")

    def collection(self, wave: int = 0) -> "Collection":
        """Count the reports locally, to check the hub's arithmetic."""
        return collection_of(self.reports(wave))

    def receipt(self, wave: int = 0) -> bytes:
        """Return the analysis as the hub signed it, for `cloister receipt verify`; checked if a key is pinned.

        Raises:
            ReceiptRejected: the pinned key did not sign it, or it is of another survey or wave.
        """
        raw = self.client.transport.raw("GET", f"{self._path}/receipt?{urlencode({'wave': wave})}")
        if self.client.owner_key is not None:
            body = verify_receipt(raw, self.client.owner_key)
            if (body["form"], body.get("survey")) != (ANALYSIS, self.name) or (wave and body.get("wave") != wave):
                raise ReceiptRejected("the receipt is genuine, but of another survey or wave.")
        return raw

    def advise(self, question: Mapping[str, Any], people: int = 500) -> list[dict[str, Any]]:
        """Return the expected error of a question at each level, before any answers."""
        return self.client.advise_question(question, people)

    def __repr__(self) -> str:
        return f"<RemoteSurvey {self.name} on {self.client.transport.address}>"
