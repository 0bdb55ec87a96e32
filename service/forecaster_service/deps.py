"""What routes ask for."""

from typing import Annotated

from fastapi import Depends, Request

from forecaster_service.store import Store


async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


StoreDep = Annotated[Store, Depends(_store)]
