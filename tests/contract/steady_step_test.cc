// In a step that is like the last one nobody allocates memory as large as a tensor: what is on its
// way is sent from where it lies, and received where it stays, or in memory that is used again.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tests/contract/contract_test.h"

namespace {

constexpr size_t kLarge = 100 << 10;
std::atomic<bool> counts = false;
std::atomic<int> large = 0;

void* Allocate(size_t bytes, size_t alignment) {
  if (bytes >= kLarge && counts) ++large;
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace parley {
namespace {

class SteadyStep : public ContractTest {};
INSTANTIATE_TEST_SUITE_P(Over, SteadyStep,
                         testing::Values("InProcess", "Direct", "DirectTls", "Local"),
                         [](const auto& info) { return std::string(info.param); });

void ExpectNoLargeAllocation(LocalCluster& cluster) {
  constexpr int kSteps = 12;
  cluster.RunWorkers(1, [&](Session& session) {
    StartTraining(session, 400);
    for (const size_t tensor : {1, 0}) {
      const absl::Span<float> gradient = As<float>(session.gradient(tensor));
      // Half of it zeros, which are left out; all of the first slice goes.
      std::fill(gradient.begin(), gradient.begin() + (gradient.size() + 1) / 2, 1.0F);
    }
    for (int step = 0; step < kSteps; ++step) {
      counts = step >= kSteps / 2;
      ASSERT_TRUE(session.NextStep().has_value());
      for (const size_t tensor : {1, 0}) ASSERT_TRUE(session.Push(tensor).ok());
      ASSERT_TRUE(session.Complete(0).ok());
      ASSERT_TRUE(session.Pull().ok());
    }
    counts = false;
  });
  EXPECT_EQ(large.exchange(0), 0);
}

TEST_P(SteadyStep, AllocatesNoTensor) {
  for (const char* job : {"consistency { sync {} }", "consistency { sync { deterministic: true } }",
                          "consistency { bounded {} }", "gradients_on_wire: WIRE_BFLOAT16"}) {
    SCOPED_TRACE(job);
    auto cluster = MakeCluster(1, 1, absl::StrCat("threads: 1 steps: 100 ", job));
    ExpectNoLargeAllocation(*cluster);
  }
}

}  // namespace
}  // namespace parley
