"""The same application as replicas of Ray Serve, in processes on one or several machines.

Ray's proxy takes the connections, so the deadlines of `protocol` do not apply. Ray hands each
request to a replica that has room, replaces replicas that die, and checks the health of each.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from forecaster.base import cluster
from forecaster.base.errors import UnavailableError
from forecaster_service.app import create_app
from forecaster_service.settings import Settings, from_environment
from forecaster_service.store import Store

NAME = "forecaster"
"""The name of the application on a cluster."""
HEALTH_SECONDS = 2.0
"""Seconds between two health checks: a dead replica without requests goes unnoticed that long."""


def serve(address: str, host: str, port: int, replicas: int, gpus: float = 0.0) -> None:
    """Serve with the settings of the environment until a signal asks for the end.

    `address` is that of a cluster as `cluster.each` takes it; each of the `replicas` gets one
    processor and the share `gpus` of a GPU. The proxy listens on `host` of the cluster's head.
    Raises UnavailableError if the cluster or a model is unavailable.
    """
    settings = from_environment()
    models = [
        str(Path(model).resolve()) if Path(model).is_dir() else model for model in settings.models
    ]
    settings = settings.model_copy(update={"model": ",".join(models)})
    with cluster.joined(address, replicas, gpus) as ray:
        from ray import serve as engine

        try:
            engine.start(proxy_location="HeadOnly", http_options={"host": host, "port": port})
            engine.run(application(settings, replicas, gpus), name=NAME)
            while True:
                time.sleep(1)
        except (RuntimeError, ray.exceptions.RayError) as error:
            status = engine.status().applications.get(NAME)
            messages = (
                [deployment.message for deployment in status.deployments.values()] if status else []
            )
            reason = "\n".join([str(error), *messages]).strip().splitlines()[-1]
            raise UnavailableError(
                f"Ray Serve at {address} cannot serve; its log on the head of the cluster tells "
                f"more: {reason}"
            ) from None
        finally:
            engine.delete(NAME, _blocking=False)


def application(settings: Settings, replicas: int, gpus: float) -> Any:
    """The application that Ray Serve runs."""
    from ray import serve

    def build() -> FastAPI:
        return create_app(settings)

    class Replica:
        app: FastAPI

        async def check_health(self) -> None:
            await check(self.app.state.store)

    deployed: Any = serve.deployment(
        serve.ingress(build)(Replica),
        name=NAME,
        num_replicas=replicas,
        max_ongoing_requests=settings.max_queue,
        ray_actor_options={"num_cpus": 1, "num_gpus": gpus},
        health_check_period_s=HEALTH_SECONDS,
    )
    return deployed.bind()


async def check(store: Store) -> None:
    """Wait until the models are loaded. Raises RuntimeError if one is missing or the device is
    lost; Ray then replaces this replica."""
    while store.status == "loading":
        await asyncio.sleep(0.1)
    missing = [slot.reason for slot in store.slots if slot.served is None]
    if store.lost or missing or not store.slots:
        raise RuntimeError("; ".join([store.lost, *missing]).strip("; ") or "no model was named")
