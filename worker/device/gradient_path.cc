#include "worker/device/gradient_path.h"

#include <utility>

#include "absl/memory/memory.h"
#include "common/clock/steady_now.h"

namespace parley {

absl::StatusOr<std::unique_ptr<GradientPath>> GradientPath::Make(ComputeDevice& device,
                                                                 const Options& options) {
  auto path = absl::WrapUnique(new GradientPath(device));
  auto ring =
      DeviceRing::Make(device, "buckets of gradients", options.packed, options.bucket_bytes);
  if (!ring.ok()) return ring.status();
  {
    absl::MutexLock lock(&path->order_mu_);
    path->ring_ = *std::move(ring);
  }
  path->staging_ = std::make_unique<Staging>(device, "buckets of gradients", options.bucket_bytes,
                                             options.most_pinned);
  return path;
}

GradientPath::~GradientPath() {
  // A device that does not answer within a minute is lost, and nobody reads that memory.
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  absl::MutexLock lock(&mu_);
  for (const Sent& sent : sent_) {
    if (!device_.Await(*sent.copied, deadline).ok()) break;
  }
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> GradientPath::TakeEvent() {
  {
    absl::MutexLock lock(&mu_);
    if (!events_.empty()) {
      auto event = std::move(events_.back());
      events_.pop_back();
      return event;
    }
  }
  return device_.MakeEvent();
}

absl::Status GradientPath::Send(size_t bucket, absl::Span<const Piece> pieces, float scale,
                                BucketType type, size_t bytes, absl::Time deadline) {
  if (bytes > staging_->block_bytes()) {
    return absl::InvalidArgumentError("a bucket of gradients is larger than its memory");
  }
  const auto block = staging_->Take(deadline);
  if (!block.ok()) return block.status();
  auto event = TakeEvent();
  if (!event.ok()) return event.status();
  std::byte* const host = staging_->block(*block);

  absl::MutexLock order(&order_mu_);
  const auto packed = ring_->Take(StreamId::kCompute);
  if (!packed.ok()) return packed.status();
  std::byte* const from = ring_->block(*packed);
  absl::Status status = device_.Pack(StreamId::kCompute, pieces, scale, type, from);
  if (status.ok()) status = FollowCompute(**event);
  if (status.ok()) status = Copy(**event, from, absl::MakeSpan(host, bytes));
  if (status.ok()) status = ring_->Release(*packed, StreamId::kToHost);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  sent_.push_back({bucket, *block, absl::MakeConstSpan(host, bytes), *std::move(event)});
  return absl::OkStatus();
}

absl::StatusOr<size_t> GradientPath::SendDirect(size_t bucket, const std::byte* tensor,
                                                absl::Span<std::byte> host, size_t piece_bytes) {
  size_t pieces = 0;
  absl::MutexLock order(&order_mu_);
  for (size_t begin = 0; begin < host.size(); begin += piece_bytes) {
    const absl::Span<std::byte> piece = host.subspan(begin, piece_bytes);
    auto event = TakeEvent();
    if (!event.ok()) return event.status();
    absl::Status status = begin == 0 ? FollowCompute(**event) : absl::OkStatus();
    if (status.ok()) status = Copy(**event, tensor + begin, piece);
    if (!status.ok()) return status;
    absl::MutexLock lock(&mu_);
    sent_.push_back({bucket, std::nullopt, piece, *std::move(event)});
    ++pieces;
  }
  return pieces;
}

absl::Status GradientPath::SendNonzero(size_t bucket, const float* tensor,
                                       absl::Span<std::byte> host, absl::Span<uint8_t> nonzero) {
  absl::MutexLock order(&order_mu_);
  auto event = TakeEvent();
  if (!event.ok()) return event.status();
  absl::Status status = FollowCompute(**event);
  if (status.ok()) {
    status = device_.CopyNonzero(StreamId::kToHost, reinterpret_cast<float*>(host.data()), tensor,
                                 host.size() / sizeof(float), nonzero.data());
  }
  if (status.ok()) status = device_.Record(**event, StreamId::kToHost);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  sent_.push_back({bucket, std::nullopt, host, *std::move(event)});
  return absl::OkStatus();
}

absl::Status GradientPath::FollowCompute(DeviceEvent& event) {
  absl::Status status = device_.Record(event, StreamId::kCompute);
  return status.ok() ? device_.Wait(StreamId::kToHost, event) : status;
}

absl::Status GradientPath::Copy(DeviceEvent& event, const std::byte* from,
                                absl::Span<std::byte> host) {
  absl::Status status = device_.CopyToHost(StreamId::kToHost, host.data(), from, host.size());
  // A stream that waits for it has been told: the event can say another thing now.
  return status.ok() ? device_.Record(event, StreamId::kToHost) : status;
}

absl::StatusOr<bool> GradientPath::Deliver(absl::Time deadline, Push push) {
  Sent sent;
  {
    absl::MutexLock lock(&mu_);
    if (sent_.empty()) return false;
    sent = std::move(sent_.front());
    sent_.pop_front();
  }
  if (absl::Status status = device_.Await(*sent.copied, deadline); !status.ok()) {
    absl::MutexLock lock(&mu_);
    sent_.push_front(std::move(sent));  // its copy may still come
    return status;
  }
  device_.HostReads(sent.values.data(), sent.values.size());
  const absl::Status pushed = push(sent.bucket, sent.values);
  if (sent.block.has_value()) staging_->Release(*sent.block);
  absl::MutexLock lock(&mu_);
  events_.push_back(std::move(sent.copied));
  if (!pushed.ok()) return pushed;
  return true;
}

}  // namespace parley
