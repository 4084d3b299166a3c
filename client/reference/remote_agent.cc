#include "client/reference/remote_agent.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/reference/direct_references.h"
#include "client/reference/local_reference_guest.h"
#include "common/clock/steady_notification.h"
#include "common/direct/direct_loops.h"
#include "common/seed.h"
#include "common/usable_cores.h"

namespace parley {
namespace {

// How long others' open calls here may take to be answered when the agent ends.
constexpr absl::Duration kGrace = absl::Milliseconds(500);
// A process that takes values by the hundred tells their owners a few times that it has dropped
// them.
constexpr absl::Duration kGather = absl::Milliseconds(5);
// For direct connections that are not encrypted: one receives about as fast as a link of 25 Gbit/s
// brings.
constexpr size_t kPlainDirectThreads = 1;
// How long it tries to tell others that it goes.
constexpr absl::Duration kFarewell = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteAgent>> RemoteAgent::Start(
    const Options& options, std::map<std::string, RemoteFunction> functions) {
  std::unique_ptr<RemoteAgent> agent(new RemoteAgent(options, std::move(functions)));
  agent->address_ = options.advertise;
  if (options.service == nullptr) {
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(
        options.listen, {&agent->own_service_}, RpcObserver(), {options.credentials, nullptr});
    if (!server.ok()) return server.status();
    agent->server_ = *std::move(server);
    if (options.advertise.empty()) agent->address_ = agent->server_->address();
  }

  ReferenceHost::Options host;
  host.space.job = options.job;
  host.space.incarnation = RandomIncarnation();
  host.space.address = agent->address_;
  host.space.lease = options.lease;
  host.space.patience = options.patience;
  host.space.gather = kGather;
  host.space.draw_session = RandomIncarnation;
  host.send = [peers = agent->peers_](const ToOwner& message, absl::Duration patience,
                                      Done<FromOwner> done) {
    peers->Send(message, patience, std::move(done));
  };
  host.begin = [self = agent.get()](ReferenceSpace::Run run) { self->Begin(std::move(run)); };
  agent->host_ = std::make_shared<ReferenceHost>(std::move(host));
  agent->host_->Start();
  if (options.direct) {
    absl::StatusOr<std::unique_ptr<DirectServer>> direct = DirectServer::Start(
        HostOf(options.listen), LoopsFor(options.credentials, kPlainDirectThreads, UsableCores()),
        DirectReferenceMethods(agent->host_, options.observer),
        {options.credentials, options.refused});
    if (direct.ok()) agent->direct_ = *std::move(direct);
  }
  (options.service != nullptr ? *options.service : agent->own_service_)
      .Serve(agent->host_, agent->direct_ != nullptr ? agent->direct_->Found() : FindDirectReply());
  if (options.shares_memory) {
    absl::StatusOr<std::unique_ptr<LocalDoor>> door =
        LocalReferenceGuest::OpenDoor(agent->address_, agent->host_, options.observer);
    if (door.ok()) agent->door_ = *std::move(door);
  }
  return agent;
}

RemoteAgent::RemoteAgent(const Options& options, std::map<std::string, RemoteFunction> functions)
    : functions_(std::move(functions)),
      at_once_(options.at_once),
      peers_(std::make_shared<ReferencePeers>(options.direct, options.credentials)),
      threads_(options.threads) {}

RemoteAgent::~RemoteAgent() {
  if (host_ == nullptr) return;  // it did not start
  host_->End();
  door_.reset();
  direct_.reset();
  threads_.Stop();  // functions that wait for values have just been told
  if (server_ != nullptr) server_->Shutdown(kGrace);
  peers_->Close(kFarewell);
}

RemoteReference RemoteAgent::Make(RemoteValue value, const ReferenceScope& scope) {
  RemoteReference reference;
  host_->With([&](ReferenceSpace& space, absl::Time, Replies&) {
    reference = RemoteReference(
        host_, space.Make(std::make_shared<const RemoteValue>(std::move(value)), scope));
  });
  return reference;
}

absl::Status RemoteAgent::Connect(const std::string& address, absl::Time deadline) {
  struct Waiting {
    SteadyNotification came;
    absl::Status status;
  };
  const auto waiting = std::make_shared<Waiting>();
  host_->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.Connect(address, now, replies,
                  [waiting](const absl::Status& status, absl::Time, Replies& replies) {
                    replies.Add([waiting, status] {
                      waiting->status = status;
                      waiting->came.Notify();
                    });
                  });
  });
  if (!waiting->came.WaitUntil(deadline)) {
    return absl::DeadlineExceededError(absl::StrCat("no connection to ", address, " in time"));
  }
  return waiting->status;
}

absl::StatusOr<RemoteReference> RemoteAgent::Call(const std::string& address,
                                                  const std::string& function,
                                                  const std::vector<RemoteReference>& arguments,
                                                  const ReferenceScope& scope,
                                                  ReferenceSpace::Answered answered) {
  std::vector<ReferenceSpace::Handle> handles;
  for (const RemoteReference& argument : arguments) {
    if (!argument.valid() || argument.hold_->host != host_) {
      return absl::InvalidArgumentError(
          absl::StrCat(function, ": an argument is of nothing, or another agent's"));
    }
    handles.push_back(argument.hold_->handle);
  }
  absl::StatusOr<ReferenceSpace::Handle> result = absl::CancelledError("the agent has ended");
  host_->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    result = space.Call(address, function, handles, scope, /*send_ahead=*/true, now, replies,
                        std::move(answered));
  });
  if (!result.ok()) return result.status();
  return RemoteReference(host_, *result);
}

void RemoteAgent::EndStep(const StepScope& scope) {
  host_->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.EndStep(scope, now, replies);
  });
}

RemoteAgent::Counts RemoteAgent::counts() const {
  Counts counts;
  host_->With([&](ReferenceSpace& space, absl::Time, Replies&) {
    counts = {space.owner().values(), space.holder().held(), space.owner().sessions(), 0};
  });
  if (direct_ != nullptr) counts.direct = direct_->calls();
  return counts;
}

void RemoteAgent::Begin(ReferenceSpace::Run run) {
  bool here = at_once_.contains(run.function);
  if (here) {
    host_->With([&](ReferenceSpace& space, absl::Time, Replies&) {
      here = std::all_of(run.arguments.begin(), run.arguments.end(),
                         [&](ReferenceSpace::Handle handle) { return space.IsHere(handle); });
    });
  }
  if (here) return RunNow(run);
  threads_.Run([this, run = std::move(run)] { RunNow(run); });
}

void RemoteAgent::RunNow(const ReferenceSpace::Run& run) {
  absl::StatusOr<ValuePtr> value;
  {
    RemoteCall call;
    call.function = run.function;
    call.scope = run.scope;
    // Copies of its own: the function may keep them.
    const bool there = host_->With([&](ReferenceSpace& space, absl::Time, Replies&) {
      for (const ReferenceSpace::Handle handle : run.arguments) {
        call.arguments.push_back(RemoteReference(host_, space.Copy(handle)));
      }
    });
    if (!there) return;
    value = RunFunction(call);
  }
  host_->With([&](ReferenceSpace& space, absl::Time now, Replies& replies) {
    space.Finish(run, std::move(value), now, replies);
  });
}

absl::StatusOr<ValuePtr> RemoteAgent::RunFunction(const RemoteCall& call) const {
  const auto function = functions_.find(call.function);
  if (function == functions_.end()) {
    return absl::NotFoundError(
        absl::StrCat(address_, " has no function '", call.function, "' to be called"));
  }
  try {
    absl::StatusOr<RemoteValue> value = function->second(call);
    if (!value.ok()) return value.status();
    return std::make_shared<const RemoteValue>(*std::move(value));
  } catch (const std::exception& thrown) {
    return absl::InternalError(absl::StrCat(address_, ": ", call.function, ": ", thrown.what()));
  }
}

}  // namespace parley
