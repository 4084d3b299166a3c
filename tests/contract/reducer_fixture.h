#ifndef PARLEY_TESTS_CONTRACT_REDUCER_FIXTURE_H_
#define PARLEY_TESTS_CONTRACT_REDUCER_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/clock/testing/becomes.h"
#include "common/tensor.h"
#include "tests/contract/reducer_contract.h"

namespace parley {

// What every Reducer does, with 2, 3 and 8 ranks. Their threads are their own; the suite calls all
// ranks from one.
class ReducerContract : public testing::TestWithParam<std::tuple<ReducerKind, uint32_t>> {
 protected:
  static TensorSpec Tensor(const std::string& name, int64_t elements, DataType dtype = F32,
                           bool buffer = false) {
    TensorSpec tensor;
    tensor.set_name(name);
    tensor.set_dtype(dtype);
    tensor.add_shape(elements);
    tensor.set_buffer(buffer);
    return tensor;
  }

  // `big` is cut into uneven ranges of all ranks, `small` and `double` are of one rank each, and
  // the buffer is nobody's.
  enum Tensors : size_t { kBig, kSmall, kBuffer, kDouble, kTensors };
  static constexpr size_t kBigElements = 50'000;

  static std::vector<TensorSpec> Model(bool float64) {
    return {Tensor("big", kBigElements), Tensor("small", 7), Tensor("count", 5, F32, true),
            Tensor("double", 1'003, float64 ? F64 : F32)};
  }

  static std::vector<std::vector<Reducer::Range>> Ranges(uint32_t ranks,
                                                         const std::vector<TensorSpec>& model) {
    std::vector<std::vector<Reducer::Range>> ranges(kTensors);
    size_t begin = 0;
    for (uint32_t i = 0; begin < kBigElements; ++i) {
      const size_t elements = std::min<size_t>(kBigElements - begin, 1 + 1'700 * (i % 5));
      ranges[kBig].push_back({begin * sizeof(float), elements * sizeof(float), i % ranks});
      begin += elements;
    }
    ranges[kSmall].push_back({0, 7 * sizeof(float), ranks - 1});
    ranges[kDouble].push_back({0, ByteCount(model[kDouble]), 0});
    return ranges;
  }

  // What a rank's reducer has said.
  class Heard final : public Reducer::Listener {
   public:
    void OnReduced(size_t tensor, bool any) override {
      absl::MutexLock lock(&mu_);
      reduced_.emplace_back(tensor, any);
    }
    void OnAllReduced() override {
      absl::MutexLock lock(&mu_);
      ++all_;
    }
    void OnShared() override {
      absl::MutexLock lock(&mu_);
      ++shared_;
    }
    void OnBroken(const absl::Status& why) override {
      absl::MutexLock lock(&mu_);
      broken_ = why;
    }

    std::vector<std::pair<size_t, bool>> TakeReduced() {
      absl::MutexLock lock(&mu_);
      return std::exchange(reduced_, {});
    }
    int all() {
      absl::MutexLock lock(&mu_);
      return all_;
    }
    int shared() {
      absl::MutexLock lock(&mu_);
      return shared_;
    }
    absl::Status broken() {
      absl::MutexLock lock(&mu_);
      return broken_;
    }

   private:
    absl::Mutex mu_;
    std::vector<std::pair<size_t, bool>> reduced_ ABSL_GUARDED_BY(mu_);
    int all_ ABSL_GUARDED_BY(mu_) = 0;
    int shared_ ABSL_GUARDED_BY(mu_) = 0;
    absl::Status broken_ ABSL_GUARDED_BY(mu_);
  };

  uint32_t size() const { return std::get<1>(GetParam()); }
  const ReducerKind& kind() const { return std::get<0>(GetParam()); }

  struct Rank {
    Member member;
    // Of this composition; before the reducer, which calls it.
    std::unique_ptr<Heard> heard = std::make_unique<Heard>();
    std::unique_ptr<ReducerRank> made;
    double weight = 1;
  };

  ReducerContract() {
    for (uint32_t rank = 0; rank < size(); ++rank) ranks_.push_back(Start(rank));
  }

  std::vector<Reducer::Range> RangesOf(size_t tensor) const {
    return Ranges(size(), model_)[tensor];
  }

  // A new process, as it were.
  std::unique_ptr<Rank> Start(uint32_t rank) {
    auto started = std::make_unique<Rank>();
    started->member.set_ordinal(rank);
    started->member.set_id(100 + next_);
    started->member.set_address(absl::StrCat("contract:", ::getpid(), ":", next_++));
    started->made = kind().make(started->member.address(), model_);
    return started;
  }

  Reducer& reducer(uint32_t rank) { return ranks_[rank]->made->reducer(); }

  absl::Status Form(uint32_t rank) {
    Reducer::Group group;
    group.job = "digits";
    group.job_epoch = 1;
    group.composition = composition_;
    group.rank = rank;
    for (const auto& each : ranks_) group.members.push_back(each->member);
    group.ranges = Ranges(size(), model_);
    for (uint32_t slice = 0; slice < 2 * size(); ++slice) group.values.push_back(ValuesOf(slice));
    // What the former composition has come to is none of the new one's. The reducer ends it first.
    const auto former = std::exchange(ranks_[rank]->heard, std::make_unique<Heard>());
    return reducer(rank).Form(std::move(group), ranks_[rank]->heard.get());
  }
  void FormAll() {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      const absl::Status formed = Form(rank);
      ASSERT_TRUE(formed.ok()) << formed;
    }
  }

  // Two slices of each rank, of uneven sizes.
  std::pair<uint64_t, uint32_t> ValuesOf(uint32_t slice) const {
    return {1 + slice * 7'000 + (slice % 3) * 100'000, slice % size()};
  }
  Reducer::Values Values(uint32_t slice, uint64_t version) const {
    const auto [bytes, rank] = ValuesOf(slice);
    return {.slice = slice, .rank = rank, .version = version, .bytes = bytes};
  }
  std::string Contents(uint32_t slice, uint64_t version) const {
    std::string contents(ValuesOf(slice).first, '\0');
    for (size_t i = 0; i < contents.size(); ++i) {
      contents[i] = static_cast<char>(slice * 31 + version * 7 + i);
    }
    return contents;
  }
  static absl::Span<const std::byte> Bytes(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }
  Reducer::Taken Take(uint32_t rank, uint32_t slice, uint64_t version, std::string& to) {
    to.assign(ValuesOf(slice).first, ' ');
    return reducer(rank).Take(Values(slice, version),
                              {reinterpret_cast<std::byte*>(to.data()), to.size()});
  }
  void ShareAll(uint32_t rank, uint64_t version) {
    for (const uint32_t slice : {rank, rank + size()}) {
      reducer(rank).Share(Values(slice, version), Bytes(Contents(slice, version)));
    }
  }

  // A gradient that is a function of all of these.
  static double Value(uint32_t rank, uint64_t round, size_t tensor, size_t element) {
    uint64_t mixed = ((rank * 1'000 + round) * 1'000 + tensor) * 1'000'003 + element + 1;
    for (int i = 0; i < 3; ++i) {
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    }
    return std::ldexp(static_cast<double>(mixed % 20'000) - 10'000,
                      static_cast<int>((mixed >> 40) % 20) - 20);
  }

  bool IsDouble(size_t tensor) const { return model_[tensor].dtype() == F64; }

  template <class T>
  void WriteAs(uint32_t rank, uint64_t round, size_t tensor) {
    const absl::Span<std::byte> to = ranks_[rank]->made->gradient(tensor);
    auto* const values = reinterpret_cast<T*>(to.data());
    for (size_t i = 0; i < to.size() / sizeof(T); ++i) {
      values[i] = static_cast<T>(Value(rank, round, tensor, i));
    }
  }
  void Write(uint32_t rank, uint64_t round, size_t tensor) {
    IsDouble(tensor) ? WriteAs<double>(rank, round, tensor) : WriteAs<float>(rank, round, tensor);
  }

  // Opens the step, and writes all gradients.
  void Open(uint32_t rank, uint64_t step, uint64_t round) {
    reducer(rank).Open(step, ranks_[rank]->weight);
    for (size_t tensor = 0; tensor < kTensors; ++tensor) Write(rank, round, tensor);
  }
  void OfferAll(uint32_t rank) {
    for (const size_t tensor : {kDouble, kSmall, kBig}) reducer(rank).Offer(tensor);
  }

  template <class T>
  void ExpectSumsAs(uint64_t round, size_t tensor, const std::vector<uint32_t>& having) {
    for (const Reducer::Range& range : RangesOf(tensor)) {
      const auto* const values = reinterpret_cast<const T*>(
          ranks_[range.rank]->made->gradient(tensor).data() + range.begin);
      for (size_t i = 0; i < range.bytes / sizeof(T); ++i) {
        float sum = -0.0f;
        for (const uint32_t rank : having) {
          T gradient = static_cast<T>(Value(rank, round, tensor, range.begin / sizeof(T) + i));
          gradient *= static_cast<T>(ranks_[rank]->weight);
          sum += static_cast<float>(gradient);
        }
        if (kind().ordered) {
          ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(values[i])),
                    std::bit_cast<uint32_t>(sum))
              << model_[tensor].name() << " from byte " << range.begin << ", element " << i;
        } else {
          ASSERT_NEAR(static_cast<float>(values[i]), sum, 1e-4 * (1 + std::abs(sum)));
        }
      }
    }
  }
  void ExpectSums(uint64_t round, size_t tensor, const std::vector<uint32_t>& having) {
    IsDouble(tensor) ? ExpectSumsAs<double>(round, tensor, having)
                     : ExpectSumsAs<float>(round, tensor, having);
  }
  std::vector<uint32_t> All() const {
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < size(); ++rank) all.push_back(rank);
    return all;
  }

  void ExpectDone() {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      ASSERT_TRUE(Becomes([&] { return reducer(rank).done(); }))
          << "rank " << rank << ": " << reducer(rank).Missing();
      ASSERT_TRUE(ranks_[rank]->heard->broken().ok()) << ranks_[rank]->heard->broken();
    }
  }

  // A whole step, in which all is right.
  void DoStep(uint64_t step, uint64_t round) {
    for (uint32_t rank = 0; rank < size(); ++rank) Open(rank, step, round);
    for (uint32_t rank = 0; rank < size(); ++rank) {
      OfferAll(rank);
      reducer(rank).Close();
    }
    ExpectDone();
    for (const size_t tensor : {kBig, kSmall, kDouble}) ExpectSums(round, tensor, All());
  }

  const std::vector<TensorSpec> model_ = Model(kind().float64);
  uint64_t composition_ = 1;
  int next_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace parley

#endif  // PARLEY_TESTS_CONTRACT_REDUCER_FIXTURE_H_
