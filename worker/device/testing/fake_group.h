#ifndef PARLEY_WORKER_DEVICE_TESTING_FAKE_GROUP_H_
#define PARLEY_WORKER_DEVICE_TESTING_FAKE_GROUP_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/file_descriptor.h"
#include "worker/device/device_group.h"
#include "worker/device/fake_device.h"

namespace parley {

// A DeviceGroup of FakeDevices, in threads or processes of one machine: all send their values to
// rank 0 over Unix sockets, and get the sums back. A rank that is gone closes its sockets, as one
// that NCCL has lost ends its connections; one that is there and does not call is not noticed. As
// with NCCL Reduce and Broadcast give the communication stream its work and return: the stream
// stands still until all ranks have called them, or the group is aborted.
class FakeGroup final : public DeviceGroup {
 public:
  // For rank 0; all others are told.
  static std::string MakeId();
  static absl::StatusOr<std::unique_ptr<FakeGroup>> Join(FakeDevice& device, const Options& options,
                                                         absl::Time deadline);

  absl::Status Reduce(std::byte* values, absl::Span<const Part> parts, BucketType type,
                      absl::Time deadline) override;
  absl::Status Broadcast(std::byte* values, absl::Span<const Part> parts, BucketType type,
                         absl::Time deadline) override;
  absl::Status ReduceScatter(const std::byte*, std::byte*, uint64_t, BucketType,
                             absl::Time) override {
    return absl::UnimplementedError("no reduce-scatter");
  }
  absl::Status AllGather(const std::byte*, std::byte*, uint64_t, BucketType, absl::Time) override {
    return absl::UnimplementedError("no all-gather");
  }
  absl::Status Await(const std::function<absl::StatusOr<bool>()>& done,
                     absl::Time deadline) override;
  void Abort() override { aborted_ = true; }
  ~FakeGroup() override;

 private:
  // What the ranks do together, behind what the stream had been given before.
  struct Exchange {
    std::unique_ptr<DeviceEvent> before;
    std::function<absl::Status(std::vector<float>& received)> run;
    std::vector<float> received;  // empty: it has failed
    std::atomic<bool> done = false;
  };

  FakeGroup(FakeDevice& device, const Options& options) : device_(device), options_(options) {}

  absl::Status Accept(absl::Time deadline);
  absl::Status Connect(absl::Time deadline);
  // Waits, for a moment, until the socket can be read or written; says why no more is to be waited.
  absl::Status Ready(int fd, short events, absl::Time deadline) const;
  absl::Status Send(uint32_t rank, const std::vector<float>& values, absl::Time deadline);
  absl::Status Receive(uint32_t rank, std::vector<float>& values, absl::Time deadline);
  // What rank 0 needs of all, and what they get.
  absl::Status Gather(const std::vector<float>& own, absl::Span<const Part> parts,
                      std::vector<float>& all, absl::Time deadline);
  void Run();  // the thread
  absl::Status Do(Exchange& exchange);
  // Gives it to thread and stream. take: what becomes of what is received.
  absl::Status Launch(const std::string& what, const std::vector<Range>& reads,
                      const std::vector<Range>& writes,
                      std::function<absl::Status(std::vector<float>& received)> run,
                      std::function<void(const std::vector<float>& received)> take);
  absl::Status SumUp(const std::vector<float>& own, absl::Span<const Part> parts,
                     std::vector<float>& sums, absl::Time deadline);
  absl::Status Failed(const absl::Status& why);
  absl::Status failed() const;

  FakeDevice& device_;
  const Options options_;
  std::vector<FileDescriptor> sockets_;  // rank 0: of each rank; else the first is to rank 0
  std::atomic<bool> aborted_ = false;
  std::thread thread_;
  mutable absl::Mutex mu_;
  std::deque<std::shared_ptr<Exchange>> exchanges_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_TESTING_FAKE_GROUP_H_
