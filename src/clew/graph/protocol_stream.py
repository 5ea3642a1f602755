"""Protocol stream: a graph driven by LangGraph's `astream_events(version="v3")`, for clients of the thread protocol."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeAlias

from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.runnables import RunnableConfig
from langgraph.stream import ProtocolEvent, StreamChannel, StreamTransformer

from clew.graph.position import Graph

# LangGraph folds tasks into `lifecycle`. We need them as they are, so they are streamed a second time under this name.
TASKS = "clew_tasks"

Heard: TypeAlias = tuple[tuple[str, ...], str, Any]


class AllModes(StreamTransformer):
    """Makes LangGraph stream in all modes that the protocol has a channel for."""

    required_stream_modes = ("tasks", "updates", "custom", "checkpoints", "tools")

    def __init__(self, scope: tuple[str, ...] = ()) -> None:
        super().__init__(scope)
        self._tasks: StreamChannel[Any] = StreamChannel(TASKS)

    def init(self) -> dict[str, Any]:
        return {} if self.scope else {TASKS: self._tasks}

    def process(self, event: ProtocolEvent) -> bool:
        if event["method"] == "tasks" and not self.scope:
            self._tasks.push((event["params"]["namespace"], event["params"]["data"]))
        return True


async def protocol_stream(
    graph: Graph,
    value: Any,
    config: RunnableConfig,
    options: Mapping[str, Any],
    tell: Callable[[ProtocolEvent], None],
) -> AsyncGenerator[Heard]:
    """The graph's stream as `astream` has it, and each event of the protocol to `tell`."""
    with suppress_langchain_beta_warning():
        stream = await graph.astream_events(value, config, version="v3", transformers=[AllModes], **options)
    async with stream:
        async for event in stream:
            method, params = event["method"], event["params"]
            namespace, data = params["namespace"], params["data"]
            if method == f"custom:{TASKS}":
                method, (namespace, data) = "tasks", data
                params = {**params, "namespace": namespace, "data": data}
                event = {**event, "method": method, "params": params}
            tell(event)
            yield tuple(namespace), method, data
