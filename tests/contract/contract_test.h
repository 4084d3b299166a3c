#ifndef PARLEY_TESTS_CONTRACT_CONTRACT_TEST_H_
#define PARLEY_TESTS_CONTRACT_CONTRACT_TEST_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/contract/cluster.h"

namespace parley {

// The suite runs over every implementation of the client interfaces.
class ContractTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Transport> MakeTransport() const {
    const std::string_view name = GetParam();
    if (name == "Local") return MakeLocalTransport();
    if (name == "Direct") return MakeDirectTransport();
    if (name == "DirectTls") return MakeDirectTlsTransport();
    return name == "Grpc" ? MakeGrpcTransport() : MakeInProcessTransport();
  }
  // Not only where they lie: as to another machine.
  static bool SendsBytes() {
    const std::string_view name = GetParam();
    return name != "InProcess" && name != "Local";
  }
  std::unique_ptr<LocalCluster> MakeCluster(int workers, int shards,
                                            const std::string& more) const {
    return std::make_unique<LocalCluster>(MakeTransport(), ContractJob(workers, shards, more));
  }
};

#define PARLEY_OVER_ALL_TRANSPORTS(Suite)                                                \
  INSTANTIATE_TEST_SUITE_P(                                                              \
      Over, Suite, testing::Values("InProcess", "Grpc", "Direct", "DirectTls", "Local"), \
      [](const testing::TestParamInfo<const char*>& info) { return std::string(info.param); })

// A call of a client interface, waited for: WaitFor<PullReply>([&](auto done) { client.Pull(...,
// done); }).
template <class Reply>
absl::StatusOr<Reply> WaitFor(const std::function<void(Done<Reply>)>& call) {
  struct Answer {
    absl::Notification here;
    absl::StatusOr<Reply> reply;
  };
  auto answer = std::make_shared<Answer>();
  call([answer](absl::StatusOr<Reply> reply) {
    answer->reply = std::move(reply);
    answer->here.Notify();
  });
  if (!answer->here.WaitForNotificationWithTimeout(absl::Seconds(60))) {
    return absl::DeadlineExceededError("the test gave up");
  }
  return std::move(answer->reply);
}

// Rows of 800 elements of the large tensor: two slices, over the shards.
inline constexpr size_t kBigRows = 400;

// The tensors that most tests train: `big` is cut into slices, `scale` is small, `count` is a
// buffer.
inline std::vector<TensorSpec> Model() {
  std::vector<TensorSpec> model(3);
  model[0].set_name("big");
  model[0].set_dtype(F32);
  model[0].add_shape(kBigRows);
  model[0].add_shape(800);
  model[1].set_name("scale");
  model[1].set_dtype(F32);
  model[1].add_shape(7);
  model[2].set_name("count");
  model[2].set_dtype(I64);
  model[2].set_buffer(true);
  return model;
}

template <class T>
absl::Span<T> As(absl::Span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T>
absl::Span<const T> As(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Registers Model(), gives zeros as initial values where it is this worker's turn, and pulls.
inline void StartTraining(Session& session, uint64_t training_samples, uint64_t test_samples = 0) {
  const std::vector<TensorSpec> model = Model();
  const absl::Status registered = session.Register(model, training_samples, test_samples);
  ASSERT_TRUE(registered.ok()) << registered;
  if (session.must_initialize()) {
    std::vector<absl::Span<const std::byte>> zeros;  // gradients are zero at first
    for (size_t i = 0; i < model.size(); ++i) zeros.push_back(session.gradient(i));
    const absl::Status initialized = session.Initialize(zeros);
    ASSERT_TRUE(initialized.ok()) << initialized;
  }
  const absl::Status pulled = session.Pull();
  ASSERT_TRUE(pulled.ok()) << pulled;
}

// After all steps, where nothing went wrong.
inline void ExpectTheEnd(Session& session, const std::vector<PhaseSeconds>& seconds = {}) {
  const absl::StatusOr<bool> finished = session.Finish(seconds);
  ASSERT_TRUE(finished.ok()) << finished.status();
  EXPECT_TRUE(*finished);
}

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_CONTRACT_TEST_H_
