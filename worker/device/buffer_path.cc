#include "worker/device/buffer_path.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr size_t kAlignment = 16;  // of what is not packed

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

absl::StatusOr<std::unique_ptr<BufferPath>> BufferPath::Make(ComputeDevice& device, size_t bytes,
                                                             size_t places) {
  auto path = absl::WrapUnique(new BufferPath(device));
  const size_t room = Aligned(bytes) + places * kAlignment;
  auto on_device = device.Allocate("buffers", room);
  if (!on_device.ok()) return on_device.status();
  path->on_device_ = *std::move(on_device);
  for (DeviceBuffer* const pinned : {&path->fetched_, &path->brought_}) {
    auto memory = device.AllocatePinned("buffers", room);
    if (!memory.ok()) return memory.status();
    *pinned = *std::move(memory);
  }
  for (auto* const event :
       {&path->packed_, &path->fetched_all_, &path->used_, &path->brought_all_}) {
    auto made = device.MakeEvent();
    if (!made.ok()) return made.status();
    *event = *std::move(made);
  }
  return path;
}

BufferPath::~BufferPath() {
  // A device that does not answer within a minute is lost, and nobody reads that memory.
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  if (is_fetching_) device_.Await(*fetched_all_, deadline).IgnoreError();
  if (has_brought_) device_.Await(*brought_all_, deadline).IgnoreError();
}

size_t BufferPath::Lay(absl::Span<const Place> places) {
  offsets_.assign(places.size(), 0);
  size_t end = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].is_packed()) continue;
    offsets_[i] = end;
    end += places[i].bytes;
  }
  const size_t packed = end;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].is_packed()) continue;
    offsets_[i] = Aligned(end);
    end = offsets_[i] + places[i].bytes;
  }
  return packed;
}

std::vector<Piece> BufferPath::Pieces(absl::Span<const Place> places) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].is_packed() || places[i].bytes == 0) continue;
    pieces.push_back({reinterpret_cast<float*>(places[i].device), offsets_[i] / sizeof(float),
                      places[i].bytes / sizeof(float)});
  }
  return pieces;
}

absl::Status BufferPath::Fetch(absl::Span<const Place> places) {
  if (is_fetching_) return absl::FailedPreconditionError("buffers were fetched and not received");
  const size_t packed = Lay(places);
  fetching_.assign(places.begin(), places.end());
  fetching_offsets_ = offsets_;
  absl::Status status;
  if (packed > 0) {
    status = device_.Pack(StreamId::kCompute, Pieces(places), 1, BucketType::kFloat32,
                          on_device_.data());
  }
  if (status.ok()) status = device_.Record(*packed_, StreamId::kCompute);
  if (status.ok()) status = device_.Wait(StreamId::kToHost, *packed_);
  if (status.ok() && packed > 0) {
    status = device_.CopyToHost(StreamId::kToHost, fetched_.data(), on_device_.data(), packed);
  }
  for (size_t i = 0; i < places.size() && status.ok(); ++i) {
    if (places[i].is_packed() || places[i].bytes == 0) continue;
    status = device_.CopyToHost(StreamId::kToHost, fetched_.data() + offsets_[i], places[i].device,
                                places[i].bytes);
  }
  if (status.ok()) status = device_.Record(*fetched_all_, StreamId::kToHost);
  is_fetching_ = is_fetching_ || status.ok();
  return status;
}

absl::Status BufferPath::Receive(absl::Time deadline, Take take) {
  if (!is_fetching_) return absl::FailedPreconditionError("no buffers were fetched");
  if (absl::Status status = device_.Await(*fetched_all_, deadline); !status.ok()) return status;
  is_fetching_ = false;
  for (size_t i = 0; i < fetching_.size(); ++i) {
    const std::byte* const values = fetched_.data() + fetching_offsets_[i];
    if (fetching_[i].bytes == 0) continue;
    device_.HostReads(values, fetching_[i].bytes);
    take(i, {values, fetching_[i].bytes});
  }
  return absl::OkStatus();
}

absl::Status BufferPath::Bring(absl::Span<const Place> places, absl::Time deadline, Fill fill) {
  absl::Status status;
  if (std::exchange(has_brought_, false)) {
    if (status = device_.Await(*brought_all_, deadline); !status.ok()) return status;
  }
  const size_t packed = Lay(places);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].bytes == 0) continue;
    std::byte* const values = brought_.data() + offsets_[i];
    device_.HostWrites(values, places[i].bytes);
    fill(i, {values, places[i].bytes});
  }
  // What the compute stream was given before may use the tensors, and the packed block.
  status = device_.Record(*used_, StreamId::kCompute);
  if (status.ok()) status = device_.Wait(StreamId::kToDevice, *used_);
  if (status.ok() && packed > 0) {
    status = device_.CopyToDevice(StreamId::kToDevice, on_device_.data(), brought_.data(), packed);
  }
  for (size_t i = 0; i < places.size() && status.ok(); ++i) {
    if (places[i].is_packed() || places[i].bytes == 0) continue;
    status = device_.CopyToDevice(StreamId::kToDevice, places[i].device,
                                  brought_.data() + offsets_[i], places[i].bytes);
  }
  if (status.ok()) status = device_.Record(*brought_all_, StreamId::kToDevice);
  if (status.ok()) status = device_.Wait(StreamId::kCompute, *brought_all_);
  has_brought_ = status.ok();
  if (status.ok() && packed > 0) {
    status =
        device_.Unpack(StreamId::kCompute, Pieces(places), BucketType::kFloat32, on_device_.data());
  }
  return status;
}

}  // namespace parley
