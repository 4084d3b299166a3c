#ifndef PARLEY_CLIENT_REFERENCE_VALUES_FIXTURE_H_
#define PARLEY_CLIENT_REFERENCE_VALUES_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/reference/agent_options_for_test.h"
#include "client/reference/values_for_test.h"
#include "common/clock/await.h"

namespace parley {

// What one process sends to another, as the other one's function gets it.
class ValuesTest : public ::testing::Test {
 protected:
  explicit ValuesTest(Way way) {
    for (auto& agent : agents_) {
      RemoteAgent::Options options = OptionsFor(way);
      options.at_once = {"keep"};
      auto started = RemoteAgent::Start(
          options, {{"keep",
                     [this](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
                       absl::StatusOr<ValuePtr> value = call.arguments.at(0).Fetch(Soon());
                       if (!value.ok()) return value.status();
                       absl::MutexLock lock(&mu_);
                       kept_ = *std::move(value);
                       return RemoteValue();
                     }},
                    {"large", [](const RemoteCall&) { return ValueOf(U8, Large()); }},
                    {"echo", [](const RemoteCall& call) -> absl::StatusOr<RemoteValue> {
                       absl::StatusOr<ValuePtr> value = call.arguments.at(0).Fetch(Soon());
                       if (!value.ok()) return value.status();
                       return **value;
                     }}});
      EXPECT_TRUE(started.ok()) << started.status();
      agent = *std::move(started);
    }
    const absl::Status connected = from().Connect(to().address(), Soon());
    EXPECT_TRUE(connected.ok()) << connected;
  }

  RemoteAgent& from() { return *agents_[0]; }
  RemoteAgent& to() { return *agents_[1]; }

  // The value as it came.
  ValuePtr Sent(const std::vector<float>& numbers) {
    {
      absl::MutexLock lock(&mu_);
      kept_ = nullptr;
    }
    const auto called = from().Call(to().address(), "keep", {from().Make(Numbers(numbers))});
    EXPECT_TRUE(called.ok()) << called.status();
    absl::MutexLock lock(&mu_);
    const absl::Condition came(
        +[](ValuePtr* kept) { return *kept != nullptr; }, &kept_);
    if (!AwaitFor(mu_, came, absl::Seconds(30))) {
      ADD_FAILURE() << "the value does not come";
      return std::make_shared<RemoteValue>();
    }
    return std::exchange(kept_, nullptr);
  }

  // More than gRPC takes.
  static std::vector<char> Large() { return std::vector<char>(80 << 20, 'x'); }
  void ExpectLarge(const absl::StatusOr<ValuePtr>& value) {
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(ElementsOf<char>(**value) == Large());
  }

  static const std::byte* Begin(const RemoteValue& value) {
    return value.tensors.at(0).bytes.pieces().front().data();
  }

  std::unique_ptr<RemoteAgent> agents_[2];
  absl::Mutex mu_;
  ValuePtr kept_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_CLIENT_REFERENCE_VALUES_FIXTURE_H_
