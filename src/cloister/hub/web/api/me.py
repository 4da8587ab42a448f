"""User for whom a program acts."""

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from cloister.hub.web.context import Visitor, scoped

__all__ = ["router"]

router = APIRouter(tags=["people"])


class Me(BaseModel):
    """User of the token or the session."""

    id: int
    email: str
    verified: bool = Field(description="whether the address was verified; policies believe no other")
    name: str
    roles: list[str] = Field(description="what the person is in this hub")
    organisation: str | None
    scopes: list[str] = Field(description="what the token allows: read, work, share")


@router.get("/api/me")
def me(visitor: Annotated[Visitor, Depends(scoped("read"))]) -> Me:
    """Return the user of this token, and its scopes."""
    who = visitor.who
    return Me(
        id=who.id,
        email=who.email,
        verified=who.verified is not None,
        name=who.name,
        roles=who.roles,
        organisation=who.organisation.name if who.organisation else None,
        scopes=sorted(visitor.scopes),
    )
