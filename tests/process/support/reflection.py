"""What grpcurl and grpc_health_probe ask for, asked by hand: raw frames need no generated code."""

import grpc


def check_reflection_and_health(address, service):
    """Of a server without TLS and token: it is well, and says that it has this service."""
    with grpc.insecure_channel(address) as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30, wait_for_ready=True)
        assert health == b"\x08\x01", (address, health)  # SERVING
        # ServerReflectionRequest{list_services: "*"} is field 7.
        answers = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(iter([b"\x3a\x01*"]), timeout=30)
        answer = next(answers)
        assert service.encode() in answer, (address, service, answer)
