#ifndef PARLEY_WORKER_DEVICE_VALUES_H_
#define PARLEY_WORKER_DEVICE_VALUES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/reduce/reducer.h"
#include "client/session.h"
#include "client/torch/use_watch.h"
#include "common/pull_turn.h"
#include "proto/types.pb.h"
#include "worker/device/bucket_plan.h"
#include "worker/device/device.h"
#include "worker/device/device_group.h"
#include "worker/device/parameter_path.h"

namespace parley {

// How the values of a network's parameters come from the session to a device. Large ones that a
// shard on this machine shows are copied from its memory, which is pinned to be read; all others by
// pinned blocks, small ones many at a time. Either all at once, or each when forward is about to
// use it, so that it begins while the last layers' values are on their way.
//
// Among the devices of a node group (Form, ShareNext) each brings what its rank owns, and has the
// rest from the others: in units, buckets and large tensors, which all ranks share in one order,
// that of the network's tensors.
//
// DeviceBinding's; the training thread's. The device must outlive it, and the session.
class DeviceValues {
 public:
  struct Options {
    uint64_t staged_elements = 1 << 20;  // of a large one at a time; float32: 4 MiB
    // Of small ones: forward's first layers have some, and wait for all that lie with theirs.
    uint64_t bucket_elements = 1 << 16;
    // Values of so few are there before all others (PullTurn), and have buckets of their own.
    uint64_t tiny = kMostTinyBytes / sizeof(float);
    uint64_t direct = 1 << 16;  // values of so many are large
    absl::Duration patience;    // with the device
  };
  // tensors: as the session has them; parameters are float32.
  static absl::StatusOr<std::unique_ptr<DeviceValues>> Make(ComputeDevice& device,
                                                            absl::Span<const TensorSpec> tensors,
                                                            const Options& options);
  ~DeviceValues();

  // tensors: on the device, by the session's index; of buffers undefined.
  void Attach(Session& session, std::vector<at::Tensor> tensors);

  // Of what is shared so much may be under way at most when more of it is brought.
  static constexpr size_t kMostShared = 2;
  struct Sharing {
    uint32_t rank = 0;
    std::vector<std::vector<Reducer::Range>> ranges;  // by tensor: who owns what
    // Whether the other ranks are still those of this composition.
    std::function<bool()> stands;
    // Waits until at most so many broadcasts are under way, as long as the other ranks may take:
    // before the host waits for the device, which may wait for those. OK where one is lost, too.
    std::function<absl::Status(size_t most)> await;
    // Has the communication stream bring each part from its rank to all; returns when the stream
    // has been given that. Where another rank is lost: OK, and nobody uses what is computed now.
    std::function<absl::Status(std::byte* values, absl::Span<const DeviceGroup::Part> parts)>
        broadcast;
  };
  // A composition; until ShareNext each device gets all from the host, and where nothing is shared
  // in it always.
  void Form(std::optional<Sharing> sharing);
  // All ranks have ended a step: the values that come next are shared, once. What BringAsUsed has
  // not brought of them BringRest does, before the next gradients.
  void ShareNext();
  absl::Status BringRest();
  // What is to come is not shared.
  void StopSharing();

  // Those that were pulled: what the compute stream is given from now on has them.
  absl::Status BringAll();
  // After PullAhead: what forward is given from now on has each that it uses. Where one does not
  // come, Complete says what has become of the step.
  absl::Status BringAsUsed();
  // All of those, before what the compute stream is given next: in place of BringAsUsed's forward.
  absl::Status BringRemaining();
  // A forward is over: what has gone wrong in it with the device.
  absl::Status EndForward();
  // Nothing is brought any more.
  void Stop() { watch_.reset(); }

 private:
  DeviceValues(ComputeDevice& device, const Options& options)
      : device_(device), options_(options) {}
  absl::Time Deadline() const;
  absl::Status AwaitDevice(absl::Time deadline);
  absl::Status Begin();
  absl::Status BringFor(size_t tensor);
  // A bucket, or a large tensor.
  struct Unit {
    std::optional<size_t> large;  // the tensor
    size_t bucket = 0;
    std::vector<DeviceGroup::Part> parts;
    std::vector<ParameterPath::Part> own;  // of those, in bytes
  };
  Unit UnitOf(absl::Span<const BucketPlan::Part> parts) const;
  bool IsShared(size_t tensor);
  absl::Status BringUnitsUntil(size_t end);
  absl::Status BringUnit(const Unit& unit);
  absl::Status BringOwn(size_t tensor, const ParameterPath::Part& part,
                        absl::Span<const Session::ShownPart> shown);
  std::vector<Piece> PiecesOf(absl::Span<const BucketPlan::Part> parts) const;
  // Small ones, all of a bucket.
  absl::Status BringBucket(size_t bucket);
  // A large one: from where a shard shows it, or by pinned blocks. Piece by piece, so that the
  // first ones go to the device while a shard is at the last ones.
  absl::Status BringLarge(size_t tensor);
  absl::Status BringStaged(absl::Span<const BucketPlan::Part> parts);
  // Where a shard shows all of bytes begin .. end of a tensor, in pinned memory; empty: it does
  // not. The last part may end behind `end`. pins: whether to try to pin it, and whether all that
  // was tried could be.
  std::vector<Session::ShownPart> FindSources(size_t tensor, size_t begin, size_t end, bool& pins);
  bool MayPin(size_t tensor) const;

  ComputeDevice& device_;
  const Options options_;
  std::vector<std::string> names_;
  BucketPlan plan_;  // of those that are not large
  std::unique_ptr<ParameterPath> path_;
  std::unique_ptr<DeviceEvent> computed_;
  Session* session_ = nullptr;  // set by Attach
  std::vector<at::Tensor> tensors_;

  std::vector<bool> brought_;  // buckets, since the last pull

  std::optional<Sharing> sharing_;
  std::vector<Unit> units_;
  std::vector<size_t> units_until_;  // by tensor: it has come with those before; 0: in none
  size_t next_unit_ = 0;
  bool share_next_ = false;  // not all units have been shared
  bool shared_ = false;      // what is brought as used is shared

  // Where shards show large parameters, by tensor and where in it they begin: all of it is pinned.
  // No more is tried where it cannot be.
  std::vector<std::map<size_t, Session::ShownPart>> shown_;
  // What is pinned, by where it lies, whichever tensor is there: a shard that updates ahead
  // (sync.update_ahead) has each in two places in turn, and gives places that an evaluation has
  // held to others. What is shown no more stays pinned, until it is too much.
  static constexpr size_t kMostMemories = 3;  // of each part
  struct Pinned {
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    DeviceBuffer pin;
  };
  std::map<const std::byte*, Pinned> pinned_;
  // Parts of a tensor, which are not among shown_. False where one cannot be.
  bool Pin(const std::string& name, absl::Span<const Session::ShownPart> parts);
  // Of what is neither shown nor among these.
  void LetGo(absl::Span<const Session::ShownPart> but);
  std::vector<uint32_t> failed_pins_;
  std::optional<UseWatch> watch_;  // of BringAsUsed
  absl::Status error_;             // in it
};

}  // namespace parley

#endif  // PARLEY_WORKER_DEVICE_VALUES_H_
