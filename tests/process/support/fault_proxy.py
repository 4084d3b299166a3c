"""A gRPC proxy between real processes that loses, repeats and delays calls. For tests alone: the programs know of no faults."""

import asyncio
import collections
import random
import threading

import grpc

FAULTS = ("lose the request", "lose the reply", "repeat", "delay")


class FaultProxy:
    """Passes unary calls on as they are, bytes in and bytes out, but `rate` of them with a fault. Draws from `seed`.

    Which call meets which fault depends on the order in which the processes call, so a seed fixes the mixture only.
    """

    def __init__(self, seed, rate=0.1, longest_delay=0.1):
        self.counts = collections.Counter()  # (method, fault) to calls; fault None: without one
        self._random = random.Random(seed)
        self._rate, self._longest_delay = rate, longest_delay
        self._servers = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def front(self, name, target):
        """An address in front of a process. target(): the process's own address, or None as long as it is not known."""
        return asyncio.run_coroutine_threadsafe(self._front(name, target), self._loop).result(30)

    def stop(self):
        async def stop_all():
            await asyncio.gather(*(server.stop(None) for server in self._servers))

        asyncio.run_coroutine_threadsafe(stop_all(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def count(self, fault, method=None):
        return sum(n for (m, f), n in self.counts.items() if f == fault and method in (None, m))

    async def _front(self, name, target):
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((_Forwarder(self, target),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._servers.append(server)
        return f"127.0.0.1:{port}"

    def draw(self, method):
        fault = self._random.choice(FAULTS) if self._random.random() < self._rate else None
        self.counts[method, fault] += 1
        return fault, self._random.random() * self._longest_delay


_OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


class _Forwarder(grpc.GenericRpcHandler):
    def __init__(self, proxy, target):
        self._proxy, self._target = proxy, target
        self._channel = None

    def service(self, details):
        async def forward(request, context):
            return await self._forward(details.method, request, context)

        return grpc.unary_unary_rpc_method_handler(forward)  # no serializers: bytes

    async def _forward(self, path, request, context):
        if self._channel is None:
            address = self._target()
            if not address:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "proxy: the process does not serve yet")
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        fault, seconds = self._proxy.draw(path.rsplit("/", 1)[1])
        if fault == "lose the request":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "proxy: the request is lost")
        if fault == "delay":
            await asyncio.sleep(seconds)
        calls = [
            self._channel.unary_unary(path)(request, timeout=context.time_remaining())
            for _ in range(2 if fault == "repeat" else 1)
        ]
        try:
            replies = await asyncio.gather(*calls)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details())
        if fault == "lose the reply":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "proxy: the reply is lost")
        return replies[-1]
