#ifndef PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_FIXTURE_H_
#define PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "client/reference/reference_space.h"

namespace parley {

// Processes a, b and c, and the messages between them, which wait until the test lets them arrive.
class ReferenceSpaceTest : public ::testing::Test {
 protected:
  using Handle = ReferenceSpace::Handle;

  static constexpr absl::Duration kLease = absl::Seconds(8);

  static ValuePtr ValueOf(int64_t number) {
    auto value = std::make_shared<RemoteValue>();
    ValueTensor& tensor = value->tensors.emplace_back();
    tensor.dtype = I64;
    tensor.shape = {number};
    return value;
  }

  static ReferenceScope Scope(uint64_t step) {
    ReferenceScope scope;
    scope.set_step(step);
    return scope;
  }

  struct Letter {
    size_t from;
    ToOwner message;
  };

  ReferenceSpaceTest() {
    for (size_t i = 0; i < 3; ++i) Start(i);
  }

  void Start(size_t index) {
    ReferenceSpace::Options options;
    options.job = "test";
    options.incarnation = 100 * ++incarnations_ + index;
    options.address = std::string(1, static_cast<char>('a' + index));
    options.lease = kLease;
    options.draw_session = [this] { return ++sessions_; };
    spaces_[index] = std::make_unique<ReferenceSpace>(
        options, ReferenceOwner::Observer{[this](const ReferenceId& id, ReferenceOwner::Why why) {
                                            freed_.emplace_back(id, why);
                                          },
                                          nullptr});
  }

  ReferenceSpace& space(size_t index) { return *spaces_[index]; }

  void Collect() {
    for (size_t i = 0; i < 3; ++i) {
      for (ToOwner& message : space(i).TakeOutgoing(now_)) {
        letters_.push_back({i, std::move(message)});
      }
    }
  }

  // Takes the first message of this type off the network.
  template <class Request>
  std::optional<Letter> Take() {
    Collect();
    const auto letter = std::find_if(letters_.begin(), letters_.end(), [](const Letter& one) {
      return std::holds_alternative<Request>(one.message.request);
    });
    if (letter == letters_.end()) return std::nullopt;
    Letter taken = std::move(*letter);
    letters_.erase(letter);
    return taken;
  }

  void Answer(const Letter& letter, absl::StatusOr<FromOwner> answer) {
    Replies replies;
    space(letter.from).OnReply(letter.message.token, std::move(answer), now_, replies);
  }

  // answers: whether the sender hears of it.
  void Arrive(const Letter& letter, bool answers = true) {
    const auto index = static_cast<size_t>(letter.message.address[0] - 'a');
    const auto back = [this, letter, answers](auto reply) {
      if (!answers) return;
      if (reply.ok()) {
        Answer(letter, FromOwner(*std::move(reply)));
      } else {
        Answer(letter, reply.status());
      }
    };
    Replies replies;
    const CallTime time{now_, letter.message.deadline};
    std::visit(
        [&](const auto& request) {
          using Request = std::decay_t<decltype(request)>;
          ReferenceSpace& to = space(index);
          if constexpr (std::is_same_v<Request, OpenSessionRequest>) {
            back(to.OnOpen(request, now_, replies));
          } else if constexpr (std::is_same_v<Request, RenewSessionRequest>) {
            back(to.OnRenew(request, now_, replies));
          } else if constexpr (std::is_same_v<Request, LeaveSessionRequest>) {
            to.OnLeave(request, now_, replies);
          } else if constexpr (std::is_same_v<Request, OutgoingCall>) {
            to.OnCall(request, time, replies, back);
          } else if constexpr (std::is_same_v<Request, ForkRequest>) {
            to.OnFork(request, time, replies, back);
          } else if constexpr (std::is_same_v<Request, DropRequest>) {
            to.OnDrop(request, time, replies, back);
          } else {
            to.OnFetch(request, time, replies, back);
          }
        },
        letter.message.request);
  }

  // Everything arrives, and what was called is run: "make" makes `made`.
  void Settle(int64_t made = 0) {
    for (bool more = true; more;) {
      Collect();
      more = !letters_.empty();
      while (!letters_.empty()) {
        const Letter letter = std::move(letters_.front());
        letters_.pop_front();
        Arrive(letter);
      }
      for (size_t i = 0; i < 3; ++i) {
        for (const auto& run : space(i).TakeRuns()) {
          more = true;
          ran_.push_back(run.function);
          Replies replies;
          space(i).Finish(run, ValueOf(made), now_, replies);
        }
      }
    }
  }

  void Connect(size_t from, const std::string& to) {
    Replies replies;
    space(from).Connect(to, now_, replies, [](const absl::Status&, absl::Time, Replies&) {});
    Settle();
  }

  Handle Call(size_t from, const std::string& to, const std::vector<Handle>& arguments = {},
              const ReferenceScope& scope = {}, bool ahead = false) {
    Replies replies;
    const auto result = space(from).Call(to, "make", arguments, scope, ahead, now_, replies);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(0);
  }

  void Drop(size_t index, Handle handle) {
    Replies replies;
    space(index).Drop(handle, now_, replies);
  }

  // What a fetch ends with once all has arrived.
  absl::StatusOr<int64_t> Fetch(size_t index, Handle handle, int64_t made = 0) {
    absl::StatusOr<int64_t> number = absl::UnknownError("it did not end");
    {
      Replies replies;
      space(index).Fetch(handle, {now_, now_ + absl::Seconds(30)}, replies,
                         [&number](absl::StatusOr<FetchedValue> fetched) {
                           if (!fetched.ok()) {
                             number = fetched.status();
                           } else if (!fetched->value.ok()) {
                             number = fetched->value.status();
                           } else {
                             number = (*fetched->value)->tensors.at(0).shape.at(0);
                           }
                         });
    }
    Settle(made);
    return number;
  }

  void Pass(absl::Duration time) {
    now_ += time;
    for (size_t i = 0; i < 3; ++i) {
      Replies replies;
      space(i).Tick(now_, replies);
    }
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t incarnations_ = 0;
  uint64_t sessions_ = 0;
  std::unique_ptr<ReferenceSpace> spaces_[3];
  std::deque<Letter> letters_;
  std::vector<std::string> ran_;
  std::vector<std::pair<ReferenceId, ReferenceOwner::Why>> freed_;
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_REFERENCE_SPACE_FIXTURE_H_
