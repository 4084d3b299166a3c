#include "tests/simulation/references/reference_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/references/reference_node.h"

namespace parley {
namespace {

constexpr size_t kMostHandles = 24;
constexpr absl::Duration kFetchPatience = absl::Seconds(30);

ValuePtr ValueOf(int64_t number) {
  auto value = std::make_shared<RemoteValue>();
  ValueTensor& tensor = value->tensors.emplace_back();
  tensor.dtype = I64;
  tensor.shape = {number};
  return value;
}

}  // namespace

std::vector<std::string> ReferenceSimulation::Run() {
  for (size_t index = 0; index < options_.processes; ++index) nodes_.push_back(StartNode(index));
  PlanFaults();
  if (options_.scopes) {
    world_.At(world_.now() + absl::Seconds(2), [this] { EndStep(); });
  }
  RunFor(options_.length);
  // From now on all goes well; everybody drops what they have.
  healed_ = true;
  cuts_.clear();
  aims_.clear();
  for (const NodePtr& node : nodes_) node->works = false;
  // When all are there again each holds on to something of everybody's: their sessions stay, and
  // what is left over cannot go with them.
  RunFor(3 * options_.lease);
  for (const NodePtr& node : nodes_) {
    for (size_t other = 0; other < nodes_.size(); ++other) ConnectTo(node, AddressOf(other));
  }
  RunFor(absl::Seconds(1));
  for (const NodePtr& node : nodes_) Anchor(node);
  RunFor(kFetchPatience + absl::Seconds(10));
  DropAll(&Node::handles);
  RunFor(absl::Seconds(2));
  CheckOnlyAnchorsAreLeft();
  DropAll(&Node::anchors);
  // A lease for what was granted in vain.
  RunFor(options_.lease + absl::Seconds(5));
  CheckOnlyLinksAreLeft();
  for (const NodePtr& node : nodes_) {
    Do(node, [&](absl::Time now, Replies& replies) { node->space->LeaveAll(now, replies); });
  }
  RunFor(absl::Seconds(1));
  if (broken_.empty()) CheckNothingIsLeft();
  counts_.events = world_.events_run();
  return broken_;
}

void ReferenceSimulation::RunFor(absl::Duration time) {
  const absl::Time end = world_.now() + time;
  while (world_.now() < end && broken_.empty() && world_.RunNext()) {
  }
}

void ReferenceSimulation::Anchor(const NodePtr& node) {
  Do(node, [&](absl::Time now, Replies& replies) {
    for (size_t other = 0; other < nodes_.size(); ++other) {
      const auto anchor = node->space->Call(AddressOf(other), "make", {}, {}, false, now, replies);
      if (!anchor.ok()) {
        Break(absl::StrCat("where all is well again: ", anchor.status().ToString()));
        continue;
      }
      node->anchors.push_back(*anchor);
    }
  });
}

void ReferenceSimulation::DropAll(std::vector<ReferenceSpace::Handle> Node::*handles) {
  for (const NodePtr& node : nodes_) {
    Do(node, [&](absl::Time now, Replies& replies) {
      for (const auto handle : std::exchange((*node).*handles, {})) {
        node->space->Drop(handle, now, replies);
      }
    });
  }
}

// --- What the processes do
// -------------------------------------------------------------------------------------------

void ReferenceSimulation::Tick(const NodePtr& node) {
  if (!node->process->alive()) return;
  node->process->Run([this, node] {
    Do(node, [&](absl::Time now, Replies& replies) { node->space->Tick(now, replies); });
    counts_.most_operations =
        std::max<uint64_t>(counts_.most_operations, node->space->owner().operations());
  });
  world_.At(world_.now() + (healed_ ? 5 : 1) * absl::Milliseconds(50),
            [this, node] { Tick(node); });
}

void ReferenceSimulation::Pump(const NodePtr& node) {
  // What it does may have it called again.
  if (!node->process->alive() || node->pumping) return;
  node->pumping = true;
  for (bool more = true; more && node->process->alive();) {
    std::vector<ToOwner> messages = node->space->TakeOutgoing(node->process->LocalNow());
    const std::vector<ReferenceSpace::Run> runs = node->space->TakeRuns();
    more = !messages.empty() || !runs.empty();
    for (ToOwner& message : messages) Send(node, std::move(message));
    for (const ReferenceSpace::Run& run : runs) Begin(node, run);
  }
  node->pumping = false;
}

ReferenceScope ReferenceSimulation::SomeScope(const NodePtr& node) {
  ReferenceScope scope;
  if (!options_.scopes || world_.Chance(0.5)) return scope;
  scope.set_job_epoch(1);
  scope.set_step(std::max(step_, node->ended_step + 1));
  scope.set_microbatch(static_cast<uint32_t>(world_.Pick(4)));
  return scope;
}

void ReferenceSimulation::EndStep() {
  const StepScope scope{1, step_, 0};
  for (const NodePtr& node : nodes_) {
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), absl::Seconds(1)),
              [this, node, scope] {
                node->process->Run([this, node, scope] {
                  node->ended_step = std::max(node->ended_step, scope.step);
                  Do(node, [&](absl::Time now, Replies& replies) {
                    node->space->EndStep(scope, now, replies);
                  });
                });
              });
  }
  ++step_;
  if (!healed_) world_.At(world_.now() + absl::Seconds(2), [this] { EndStep(); });
}

void ReferenceSimulation::Act(const NodePtr& node) {
  if (!node->process->alive() || !node->works) return;
  node->process->Run([this, node] {
    const uint64_t what = world_.Pick(100);
    const auto some = [&] { return node->handles[world_.Pick(node->handles.size())]; };
    if (what < 10) {
      Do(node, [&](absl::Time, Replies&) {
        const auto number = static_cast<int64_t>(world_.Pick(1'000'000));
        const auto handle = node->space->Make(ValueOf(number), SomeScope(node));
        values_[node->space->IdOf(handle)] = number;
        node->handles.push_back(handle);
        ++counts_.references;
      });
    } else if (what < 22) {
      CallSome(node, "make");
    } else if (what < 40) {
      CallSome(node, "sum");
    } else if (what < 55) {
      CallSome(node, "forward");
    } else if (node->handles.empty()) {
      return;
    } else if (what < 75) {
      FetchOne(node, some());
    } else if (what < 80) {
      node->handles.push_back(node->space->Copy(some()));
    } else {
      // Also with calls and fetches under way, and before they are confirmed.
      Do(node, [&](absl::Time now, Replies& replies) {
        do {
          const size_t index = world_.Pick(node->handles.size());
          node->space->Drop(node->handles[index], now, replies);
          node->handles.erase(node->handles.begin() + static_cast<int64_t>(index));
        } while (node->handles.size() > kMostHandles);
      });
    }
  });
  world_.At(world_.now() + world_.Between(absl::Milliseconds(20), absl::Milliseconds(400)),
            [this, node] { Act(node); });
}

void ReferenceSimulation::ConnectTo(const NodePtr& node, const std::string& address) {
  ++node->connecting;
  Do(node, [&](absl::Time now, Replies& replies) {
    node->space->Connect(address, now, replies,
                         [this, node](const absl::Status& status, absl::Time, Replies&) {
                           --node->connecting;
                           if (!status.ok()) CheckFailure(status, "Connect");
                         });
  });
}

void ReferenceSimulation::CallSome(const NodePtr& node, const std::string& function) {
  // Now and then itself.
  const std::string address = AddressOf(world_.Pick(nodes_.size()));
  if (node->space->holder().OwnerAt(address) == 0) return ConnectTo(node, address);
  std::vector<ReferenceSpace::Handle> arguments;
  if (function != "make" && !node->handles.empty()) {
    for (uint64_t i = world_.Pick(4); i > 0; --i) {
      arguments.push_back(node->handles[world_.Pick(node->handles.size())]);
    }
  }
  Do(node, [&](absl::Time now, Replies& replies) {
    const auto result = node->space->Call(address, function, arguments, SomeScope(node),
                                          world_.Chance(0.5), now, replies);
    if (!result.ok()) return CheckFailure(result.status(), "Call");
    node->handles.push_back(*result);
    ++counts_.references;
    // What is dropped at once is done all the same.
    if (world_.Chance(0.1)) {
      node->handles.pop_back();
      node->space->Drop(*result, now, replies);
    }
  });
}

void ReferenceSimulation::FetchOne(const NodePtr& node, ReferenceSpace::Handle handle) {
  ++node->fetching;
  const ReferenceId id = node->space->IdOf(handle);
  const absl::Time began = world_.now();
  const auto ended = std::make_shared<bool>(false);
  Do(node, [&](absl::Time now, Replies& replies) {
    node->space->Fetch(handle, {now, now + kFetchPatience}, replies,
                       [this, node, id, began, ended](absl::StatusOr<FetchedValue> fetched) {
                         if (std::exchange(*ended, true)) Break("a fetch ended twice");
                         --node->fetching;
                         CheckFetched(node, id, began, fetched);
                       });
    // What it holds it for may be over before the value is here.
    if (world_.Chance(0.2)) {
      node->handles.erase(std::find(node->handles.begin(), node->handles.end(), handle));
      node->space->Drop(handle, now, replies);
    }
  });
}

void ReferenceSimulation::Begin(const NodePtr& node, const ReferenceSpace::Run& run) {
  ++counts_.runs;
  if (!ran_.insert(run.call).second) Break(absl::StrCat(ToString(run.call), " ran twice"));
  CheckArguments(node, run);
  ++node->running;
  if (run.function == "make") {
    FinishLater(node, run, static_cast<int64_t>(world_.Pick(1'000'000)));
  } else if (run.function == "forward" && world_.Chance(0.8)) {
    Forward(node, run);
  } else {
    Sum(node, run);
  }
}

void ReferenceSimulation::FinishLater(const NodePtr& node, const ReferenceSpace::Run& run,
                                      absl::StatusOr<int64_t> number) {
  const absl::Duration takes = world_.Chance(0.2)
                                   ? world_.Between(absl::ZeroDuration(), absl::Seconds(1))
                                   : absl::Milliseconds(1);
  world_.At(world_.now() + takes, [this, node, run, number] {
    node->process->Run([this, node, run, number] {
      --node->running;
      if (number.ok()) values_[run.call] = *number;
      Do(node, [&](absl::Time now, Replies& replies) {
        node->space->Finish(
            run, number.ok() ? absl::StatusOr<ValuePtr>(ValueOf(*number)) : number.status(), now,
            replies);
      });
    });
  });
}

void ReferenceSimulation::Sum(const NodePtr& node, const ReferenceSpace::Run& run) {
  struct Adding {
    size_t left = 1;
    absl::StatusOr<int64_t> sum = 0;
  };
  const auto adding = std::make_shared<Adding>();
  const auto one_less = [this, node, run, adding] {
    if (--adding->left == 0) FinishLater(node, run, adding->sum);
  };
  Do(node, [&](absl::Time now, Replies& replies) {
    for (const auto handle : run.arguments) {
      ++adding->left;
      const ReferenceId id = node->space->IdOf(handle);
      const absl::Time began = world_.now();
      ++node->fetching;
      node->space->Fetch(
          handle, {now, now + kFetchPatience}, replies,
          [this, node, id, began, adding, one_less](absl::StatusOr<FetchedValue> fetched) {
            --node->fetching;
            CheckFetched(node, id, began, fetched);
            const absl::Status status = fetched.ok() ? fetched->value.status() : fetched.status();
            if (!status.ok()) {
              adding->sum = status;
            } else if (adding->sum.ok()) {
              *adding->sum += NumberOf(*fetched->value);
            }
            one_less();
          });
    }
  });
  one_less();
}

// Has a third process add the arguments: their names go from user to user.
void ReferenceSimulation::Forward(const NodePtr& node, const ReferenceSpace::Run& run) {
  const std::string address = AddressOf(world_.Pick(nodes_.size()));
  if (node->space->holder().OwnerAt(address) == 0) {
    ConnectTo(node, address);
    return Sum(node, run);
  }
  Do(node, [&](absl::Time now, Replies& replies) {
    const auto result = node->space->Call(address, "sum", run.arguments, run.scope,
                                          world_.Chance(0.5), now, replies);
    if (!result.ok()) {
      CheckFailure(result.status(), "Call");
      return FinishLater(node, run, result.status());
    }
    ++counts_.references;
    const ReferenceId id = node->space->IdOf(*result);
    const absl::Time began = world_.now();
    ++node->fetching;
    node->space->Fetch(
        *result, {now, now + kFetchPatience}, replies,
        [this, node, run, id, began](absl::StatusOr<FetchedValue> fetched) {
          --node->fetching;
          CheckFetched(node, id, began, fetched);
          const auto& value = fetched.ok() ? fetched->value : fetched.status();
          FinishLater(node, run,
                      value.ok() ? absl::StatusOr<int64_t>(NumberOf(*value)) : value.status());
        });
    node->space->Drop(*result, now, replies);
  });
}

}  // namespace parley
