#ifndef PARLEY_WORKER_DEVICE_TESTING_GROUP_RANK_H_
#define PARLEY_WORKER_DEVICE_TESTING_GROUP_RANK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "worker/device/device.h"
#include "worker/device/device_buffer.h"
#include "worker/device/device_group.h"
#include "worker/device/fake_device.h"
#include "worker/device/group_gradient_path.h"
#include "worker/device/group_stream.h"
#include "worker/device/parameter_path.h"

namespace parley {

// One rank of a group over FakeDevice and FakeGroup: a device, its path, and what came.
class GroupRank {
 public:
  static constexpr size_t kValues = 50;

  // Bucket b has b + 3 tensors of 7 values; tensor t is owned, value by value, by the ranks in
  // turn, in ranges that get longer.
  static std::vector<GroupGradientPath::Bucket> Buckets(uint32_t ranks);

  GroupRank(uint32_t rank, uint32_t ranks);
  ~GroupRank();

  // Sums go to memory of the test's own.
  void TakeSumsDirectly();

  void Form(const std::string& id, bool joins = true);

  // In any order.
  void Send(int step);

  // All of a step; looks at what comes.
  absl::Status Deliver(int step);

  // The values of a step: value i is step + i. Those of a bucket are shared, then the same in
  // place; forward looks at both.
  absl::Status ShareValues(int step);

  GroupGradientPath& path() { return *path_; }
  GroupStream& stream() { return stream_; }
  // The coordinator tells of another composition.
  void HearOfAnother() { stands_ = false; }
  size_t copied_to_device() const { return device_.copied_to_device(); }
  std::vector<std::string> violations() const { return device_.violations(); }
  size_t copied_to_host() const { return device_.copied_to_host(); }

 private:
  static constexpr size_t kBuckets = 5;
  static constexpr uint64_t kCount = 7;
  static uint64_t TensorsOf(size_t bucket) { return bucket + 3; }

  // The gradient of tensor t of bucket b is step + rank + b + t; a rank lacks some in each step,
  // and every third step of it has none.
  bool Has(int step, size_t bucket, size_t tensor) const {
    return (step + rank_) % 3 != 0 && (tensor + bucket + rank_) % (ranks_ + 1) != 0;
  }
  static float Gradient(int step, uint32_t rank, size_t bucket, size_t tensor) {
    return static_cast<float>(step + rank + bucket + tensor);
  }
  size_t Count(int step, size_t b, size_t t) const;
  float Sum(int step, size_t b, size_t t) const;

  static std::vector<DeviceGroup::Part> PartsOfValues(uint32_t ranks);

  // Until Forward has been called nobody looks at its end: that would put an order between the
  // streams which the path has not.
  absl::Status Broadcast(std::byte* values, const std::vector<DeviceGroup::Part>& parts);

  // Reads them on the compute stream, and looks at what it has read.
  absl::Status Forward(int step);

  // What lies where bucket b's sums have gone.
  absl::Span<const float> Direct(size_t b) const;

  const uint32_t rank_;
  const uint32_t ranks_;
  FakeDevice device_;
  GroupStream stream_{device_};
  std::unique_ptr<ParameterPath> values_;
  DeviceBuffer parameters_;
  DeviceBuffer seen_;
  std::unique_ptr<DeviceEvent> shared_;
  std::atomic<bool> stands_ = true;
  std::atomic<bool> launched_ = false;
  uint64_t last_work_ = 0;
  std::shared_ptr<absl::Notification> forward_is_given_;
  const std::unique_ptr<DeviceEvent> shared_seen_ = *device_.MakeEvent();
  std::map<std::pair<size_t, size_t>, DeviceBuffer> gradients_;
  DeviceBuffer own_;
  absl::Mutex mu_;
  bool woken_ = false;
  std::unique_ptr<GroupGradientPath> path_;
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_TESTING_GROUP_RANK_H_
