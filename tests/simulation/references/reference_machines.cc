// The machines and the network of a ReferenceSimulation.
#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/simulation/references/reference_node.h"
#include "tests/simulation/references/reference_simulation.h"

namespace parley {

ReferenceSimulation::ReferenceSimulation(Options options)
    : options_(std::move(options)), world_(options_.seed) {}

ReferenceSimulation::~ReferenceSimulation() {
  // What a process waits for holds the process: nobody would end that circle.
  for (const std::vector<NodePtr>* nodes : {&nodes_, &former_}) {
    for (const NodePtr& node : *nodes) {
      node->process->Kill();
      node->space.reset();
    }
  }
}

ReferenceSimulation::NodePtr ReferenceSimulation::StartNode(size_t index) {
  const std::string address = AddressOf(index);
  const double rate = 1 + 0.01 * (2 * std::uniform_real_distribution<>(0, 1)(world_.random()) - 1);
  auto node = std::make_shared<Node>();
  node->index = index;
  node->works = !healed_;
  node->process = std::make_shared<Process>(&world_, address, address, rate);
  ReferenceSpace::Options options;
  options.job = "simulated";
  options.incarnation = node->incarnation = world_.random()() | 1;
  options.address = address;
  options.lease = options_.lease;
  options.patience = options_.patience;
  options.attempt = absl::Seconds(2);
  options.gather = index % 2 == 0 ? absl::ZeroDuration() : absl::Milliseconds(50);
  options.draw_session = [this] { return world_.random()() | 1; };
  node->space = std::make_unique<ReferenceSpace>(
      options,
      ReferenceOwner::Observer{
          [this, weak = std::weak_ptr<Node>(node)](const ReferenceId& id, ReferenceOwner::Why why) {
            if (const NodePtr node = weak.lock()) OnFreed(node, id, why);
          },
          [this](uint64_t session, const std::string&, ReferenceOwner::Why why) {
            if (why == ReferenceOwner::Why::kRevoked) revoked_.insert(session);
          }});
  world_.At(world_.now(), [this, node] { Tick(node); });
  world_.At(world_.now() + absl::Milliseconds(10), [this, node] { Act(node); });
  return node;
}

void ReferenceSimulation::Kill(const NodePtr& node) {
  if (!node->process->alive()) return;
  node->process->Kill();
  killed_[node->incarnation] = world_.now();
  former_.push_back(node);
  const size_t index = node->index;
  // Another one comes at its address: at once, or when everybody has noticed.
  const absl::Duration until = world_.Between(absl::Milliseconds(5), 2 * options_.lease);
  world_.At(world_.now() + until, [this, index] { Restart(index); });
}

void ReferenceSimulation::Restart(size_t index) {
  if (!nodes_[index]->process->alive()) nodes_[index] = StartNode(index);
}

void ReferenceSimulation::Saw(const NodePtr& node, ProcessFault fault) {
  for (size_t state = 0; state < kProcessStates; ++state) {
    if (node->Is(static_cast<ProcessState>(state))) ++coverage_.states[fault][state];
  }
}

void ReferenceSimulation::AtRandomTime(const std::function<void()>& fault) {
  world_.At(world_.now() + world_.Between(absl::Seconds(1), options_.length), fault);
}

void ReferenceSimulation::PlanFaults() {
  const auto some = [this] { return nodes_[world_.Pick(nodes_.size())]; };
  for (int i = 0; i < options_.kills; ++i) {
    AtRandomTime([this, some] {
      const NodePtr node = some();
      if (!node->process->alive()) return;
      Saw(node, kKilled);
      Kill(node);
    });
  }
  for (int i = 0; i < options_.short_pauses + options_.long_pauses; ++i) {
    const bool shortly = i < options_.short_pauses;
    AtRandomTime([this, some, shortly] {
      const NodePtr node = some();
      if (!node->process->alive() || node->process->stopped()) return;
      Saw(node, shortly ? kPausedShortly : kPausedPastTheLease);
      const absl::Duration pause = shortly
                                       ? world_.Between(0.05 * options_.lease, 0.6 * options_.lease)
                                       : world_.Between(1.1 * options_.lease, 2.5 * options_.lease);
      node->paused += pause;
      node->process->Stop(pause);
    });
  }
  for (int i = 0; i < options_.cuts; ++i) {
    AtRandomTime([this] {
      const size_t a = world_.Pick(nodes_.size());
      const size_t b = (a + 1 + world_.Pick(nodes_.size() - 1)) % nodes_.size();
      // Both ways, or one.
      const absl::Time until =
          world_.now() + world_.Between(absl::Milliseconds(100), 2 * options_.lease);
      cuts_[{a, b}] = until;
      if (world_.Chance(0.6)) cuts_[{b, a}] = until;
    });
  }
  for (int i = 0; i < options_.isolations; ++i) {
    AtRandomTime([this, some] {
      const NodePtr node = some();
      Saw(node, kIsolated);
      const absl::Time until = world_.now() + world_.Between(options_.lease, 2 * options_.lease);
      for (size_t other = 0; other < nodes_.size(); ++other) {
        cuts_[{node->index, other}] = until;
        cuts_[{other, node->index}] = until;
      }
    });
  }
  for (int i = 0; i < options_.aimed; ++i) {
    AtRandomTime([this] {
      const auto fault =
          static_cast<MessageFault>(kKilledBefore + world_.Pick(kMessageFaults - kKilledBefore));
      aims_.push_back({fault, static_cast<MessageType>(world_.Pick(kMessageTypes))});
    });
  }
}

bool ReferenceSimulation::IsCut(size_t a, size_t b) const {
  const auto cut = cuts_.find({a, b});
  return cut != cuts_.end() && world_.now() < cut->second;
}

bool ReferenceSimulation::TakeAim(MessageFault fault, MessageType type) {
  const auto aim = std::find_if(aims_.begin(), aims_.end(), [&](const Aim& one) {
    return one.fault == fault && one.type == type;
  });
  if (aim == aims_.end()) return false;
  aims_.erase(aim);
  ++coverage_.messages[fault][type];
  return true;
}

absl::Duration ReferenceSimulation::Latency(MessageType type) {
  const double late =
      type == options_.faults.worst ? options_.faults.worst_late : options_.faults.late;
  if (healed_ || !world_.Chance(late)) return options_.faults.usual * (0.5 + world_.Chance(0.5));
  ++coverage_.messages[kLate][type];
  return world_.Between(absl::ZeroDuration(), options_.faults.latest);
}

void ReferenceSimulation::Send(const NodePtr& from, ToOwner sent) {
  const auto message = std::make_shared<const ToOwner>(std::move(sent));
  const MessageType type = TypeOf(*message);
  const size_t to = IndexOf(message->address);
  // The caller's side: whichever comes first, an answer or the deadline.
  const auto open = std::make_shared<bool>(message->token != 0);
  const Answer end = [this, from, message, open, type](absl::StatusOr<FromOwner> answer) {
    from->process->Run([this, from, message, open, type, answer = std::move(answer)]() mutable {
      if (!std::exchange(*open, false)) return;
      if (answer.ok() && TakeAim(kCallerKilled, type)) return Kill(from);
      Do(from, [&](absl::Time now, Replies& replies) {
        from->space->OnReply(message->token, std::move(answer), now, replies);
      });
    });
  };
  if (message->token != 0) {
    world_.At(from->process->ToWorld(message->deadline),
              [end] { end(absl::DeadlineExceededError("no answer in time")); });
  }
  // At once, or in silence: then it is the transport that finds the connection dead, where that
  // comes before the deadline.
  const auto fail = [this, end](const char* why) {
    world_.At(world_.now() + (world_.Chance(0.5) ? options_.faults.found : options_.faults.usual),
              [end, why] { end(absl::UnavailableError(why)); });
  };
  if (IsCut(from->index, to)) {
    ++coverage_.messages[kCutOff][type];
    return fail("cut off");
  }
  if (!healed_ && world_.Chance(options_.faults.lost)) {
    ++coverage_.messages[kLost][type];
    return fail("the request was lost");
  }
  const Answer answer = [this, from, to, type, end, fail](absl::StatusOr<FromOwner> reply) {
    if (IsCut(to, from->index)) {
      ++coverage_.messages[kCutOff][type];
      return fail("cut off");
    }
    if (!healed_ && type != kLeave && world_.Chance(options_.faults.answer_lost)) {
      ++coverage_.messages[kAnswerLost][type];
      return fail("the answer was lost");
    }
    world_.At(world_.now() + Latency(type),
              [end, reply = std::move(reply)]() mutable { end(std::move(reply)); });
  };
  const auto deliver = [this, from, message, answer] { Deliver(from, message, answer); };
  world_.At(world_.now() + Latency(type), deliver);
  if (!healed_ && world_.Chance(options_.faults.twice)) {
    ++coverage_.messages[kTwice][type];
    // Now and then so late that all is over.
    const absl::Duration late = world_.Chance(0.1) ? 3 * options_.lease : options_.faults.latest;
    world_.At(world_.now() + world_.Between(absl::ZeroDuration(), late), deliver);
  }
}

void ReferenceSimulation::Deliver(const NodePtr& from,
                                  const std::shared_ptr<const ToOwner>& message,
                                  const Answer& answer) {
  const NodePtr node = nodes_[IndexOf(message->address)];
  if (!node->process->alive()) return answer(absl::UnavailableError("connection refused"));
  const absl::Duration left = message->deadline - from->process->LocalNow();
  node->process->Run([this, node, message, answer, left] {
    const MessageType type = TypeOf(*message);
    if (TakeAim(kKilledBefore, type)) {
      answer(absl::UnavailableError("connection closed"));
      return Kill(node);
    }
    const bool killed_after = TakeAim(kKilledAfter, type);
    Handle(node, *message, node->process->LocalNow() + left, [node, answer](auto reply) {
      if (node->process->alive()) answer(std::move(reply));
    });
    if (killed_after) Kill(node);
  });
}

void ReferenceSimulation::Handle(const NodePtr& node, const ToOwner& message, absl::Time deadline,
                                 Answer answer) {
  ReferenceSpace& space = *node->space;
  const auto reply_with = [&answer]<class Reply>(const Reply*) -> Done<Reply> {
    return [answer](absl::StatusOr<Reply> reply) {
      reply.ok() ? answer(FromOwner(*std::move(reply))) : answer(reply.status());
    };
  };
  Do(node, [&](absl::Time now, Replies& replies) {
    const CallTime time{now, deadline};
    const auto at_once = [&](auto reply) {
      replies.Add([answer, reply = std::move(reply)]() mutable {
        reply.ok() ? answer(FromOwner(*std::move(reply))) : answer(reply.status());
      });
    };
    std::visit(
        [&](const auto& request) {
          using Request = std::decay_t<decltype(request)>;
          if constexpr (std::is_same_v<Request, OpenSessionRequest>) {
            at_once(space.OnOpen(request, now, replies));
          } else if constexpr (std::is_same_v<Request, RenewSessionRequest>) {
            at_once(space.OnRenew(request, now, replies));
          } else if constexpr (std::is_same_v<Request, LeaveSessionRequest>) {
            space.OnLeave(request, now, replies);
          } else if constexpr (std::is_same_v<Request, OutgoingCall>) {
            for (const ValuePtr& value : request.ahead) counts_.ahead += value != nullptr;
            space.OnCall(request, time, replies,
                         reply_with(static_cast<const RemoteCallReply*>(nullptr)));
          } else if constexpr (std::is_same_v<Request, ForkRequest>) {
            space.OnFork(request, time, replies,
                         reply_with(static_cast<const ForkReply*>(nullptr)));
          } else if constexpr (std::is_same_v<Request, DropRequest>) {
            space.OnDrop(request, time, replies,
                         reply_with(static_cast<const DropReply*>(nullptr)));
          } else {
            space.OnFetch(request, time, replies,
                          reply_with(static_cast<const FetchedValue*>(nullptr)));
          }
        },
        message.request);
  });
}

}  // namespace parley
