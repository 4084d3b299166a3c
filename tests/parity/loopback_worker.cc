#include "tests/parity/loopback_worker.h"

#include <utility>

#include "client/grpc_connector.h"
#include "client/local_connector.h"

namespace parley {

absl::StatusOr<std::unique_ptr<LoopbackWorker>> LoopbackWorker::Join(
    const std::string& coordinator, const std::string& shard, const std::string& text,
    const std::shared_ptr<Trace>& trace) {
  std::unique_ptr<LoopbackWorker> worker(new LoopbackWorker(coordinator, shard, text));
  Session::Options options;
  options.job = worker->job();
  options.coordinator = worker->cluster_.coordinator();
  options.address = options.metrics_address = "127.0.0.1:1";  // nobody asks it
  options.trace = trace;
  auto session = Session::Join(options, *worker->connector_);
  if (!session.ok()) return session.status();
  worker->session_ = *std::move(session);
  return worker;
}

LoopbackWorker::LoopbackWorker(const std::string& coordinator, const std::string& shard,
                               const std::string& text)
    : cluster_(coordinator, shard, text), connector_(MakeLocalConnector(MakeGrpcConnector())) {}

}  // namespace parley
