"""What routes ask for."""

from typing import Annotated

from fastapi import Depends, Request

from service.store import Served, Store


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


StoreDep = Annotated[Store, Depends(_store)]


async def _ready(store: StoreDep) -> Served:
    return store.ready()


ReadyDep = Annotated[Served, Depends(_ready)]
"""Answers 503 before the body is looked at."""
