"""What every answer has, whichever route gives it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """ASGI middleware: HEAD is answered as GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            inner = {**scope, "method": "GET"}
            try:
                await self.app(inner, receive, without_body)
            finally:  # for the log and the metrics
                if "route" in inner:
                    scope["route"] = inner["route"]
        else:
            await self.app(scope, receive, send)


class Last:
    """ASGI middleware: no answer may be taken for another type than it has, and while the service
    shuts down, each answer closes its connection."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start":
                store = getattr(scope["app"].state, "store", None)
                replaced = {b"x-content-type-options": b"nosniff"}
                if store and store.draining:
                    replaced[b"connection"] = b"close"
                kept = [each for each in message["headers"] if each[0].lower() not in replaced]
                message = {**message, "headers": [*kept, *replaced.items()]}
            await send(message)

        await self.app(scope, receive, last if scope["type"] == "http" else send)
