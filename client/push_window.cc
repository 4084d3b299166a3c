#include "client/push_window.h"

#include <algorithm>
#include <utility>

#include "client/contribution.h"
#include "common/nonzero_blocks.h"
#include "common/tensor.h"

namespace parley {
namespace {

// To hear of a slice of zeros, and to look at none of it, takes about as long as to read so small a
// part of it.
constexpr size_t kLeastOfSlice = 64;
// Of slices whole: a message of such may have to go without shared memory after all, with all that
// lies there.
constexpr size_t kMostWhole = 32 << 20;

}  // namespace

std::shared_ptr<PushWindow> PushWindow::Make(const Options& options,
                                             const std::vector<TensorSpec>& tensors,
                                             const SliceLayout& layout,
                                             const TensorArena& gradients, ServiceCalls& calls) {
  return std::shared_ptr<PushWindow>(new PushWindow(options, tensors, layout, gradients, calls));
}

PushWindow::PushWindow(const Options& options, const std::vector<TensorSpec>& tensors,
                       const SliceLayout& layout, const TensorArena& gradients, ServiceCalls& calls)
    : options_(options),
      tensors_(tensors),
      layout_(layout),
      gradients_(gradients),
      calls_(calls),
      lanes_(layout.by_shard().size()),
      added_(tensors.size()) {
  attempt_.acks->answered.resize(lanes_.size());
}

void PushWindow::Begin(uint64_t step, uint32_t attempt, double scale, std::vector<uint64_t> seen) {
  Abandon();
  absl::MutexLock lock(&mu_);
  attempt_.step = step;
  attempt_.attempt = attempt;
  attempt_.scale = scale;
  attempt_.seen = std::make_shared<const std::vector<uint64_t>>(std::move(seen));
  attempt_.acks = std::make_shared<Acks>();
  attempt_.acks->answered.resize(lanes_.size());
  flushing_ = false;
  added_.assign(tensors_.size(), 0);
  for (Lane& lane : lanes_) lane.sent = 0;
}

std::string PushWindow::NonzeroOf(size_t tensor, const PlacedSlice& placed,
                                  std::string_view nonzero) const {
  if (nonzero.empty()) return {};
  // Slices begin with a byte of it: at multiples of 65,536 elements.
  constexpr uint64_t kByte = 8 * kZeroBlock;
  const size_t element = ElementBytes(tensors_[tensor].dtype());
  const uint64_t begin = placed.begin / element;
  const uint64_t end = begin + placed.bytes / element;
  return std::string(nonzero.substr(begin / kByte, (end + kByte - 1) / kByte - begin / kByte));
}

size_t PushWindow::BytesOf(size_t tensor, const PlacedSlice& placed,
                           std::string_view nonzero) const {
  if (nonzero.empty() || !calls_.ReadsLentMemory(placed.shard)) return placed.bytes;
  const size_t element = ElementBytes(tensors_[tensor].dtype());
  const uint64_t elements = placed.bytes / element;
  const uint64_t there = NonzeroElements(nonzero, elements).value_or(elements);
  return std::max<size_t>(there * element, placed.bytes / kLeastOfSlice);
}

void PushWindow::AddUntil(size_t tensor, size_t bytes, std::string_view nonzero) {
  std::vector<uint32_t> shards;
  {
    absl::MutexLock lock(&mu_);
    const size_t added = std::exchange(added_[tensor], std::max(added_[tensor], bytes));
    for (const PlacedSlice& placed : layout_.pushes(tensor)) {
      const size_t end = placed.begin + placed.bytes;
      if (end <= added || end > bytes) continue;
      Lane& lane = lanes_[placed.shard];
      std::string of_slice = NonzeroOf(tensor, placed, nonzero);
      const size_t counts = BytesOf(tensor, placed, of_slice);
      lane.waiting.push_back({tensor, &placed, std::move(of_slice), counts});
      lane.waiting_bytes += placed.bytes;
      if (std::find(shards.begin(), shards.end(), placed.shard) == shards.end()) {
        shards.push_back(placed.shard);
      }
    }
  }
  for (const uint32_t shard : shards) Pump(shard);
}

void PushWindow::Flush() {
  size_t lanes = 0;
  {
    absl::MutexLock lock(&mu_);
    flushing_ = true;
    lanes = lanes_.size();
  }
  for (uint32_t shard = 0; shard < lanes; ++shard) Pump(shard);
}

std::vector<SliceData> PushWindow::TakeRest(uint32_t shard, size_t most_bytes) {
  std::vector<Item> items;
  Attempt attempt;
  {
    absl::MutexLock lock(&mu_);
    Lane& lane = lanes_[shard];
    if (lane.waiting_bytes > most_bytes) return {};
    items.assign(lane.waiting.begin(), lane.waiting.end());
    lane.waiting.clear();
    lane.waiting_bytes = 0;
    attempt = attempt_;
  }
  std::vector<SliceData> rest(items.size());
  const std::shared_ptr<TensorPush> push =
      Encode(items, attempt, calls_.ReadsLentMemory(shard) ? Way::kSentNear : Way::kSent);
  for (size_t i = 0; i < items.size(); ++i) CopyTo(push->slices[i], rest[i]);
  return rest;
}

std::vector<PushWindow::Item> PushWindow::TakeGroup(Lane& lane, size_t& bytes) {
  std::vector<Item> items;
  const size_t target = std::min(options_.group_bytes, options_.window_bytes);
  if (lane.waiting.empty() || (!flushing_ && lane.waiting_bytes < target)) return items;
  bytes = 0;
  size_t whole = 0;
  size_t count = 0;
  while (count < lane.waiting.size() && bytes < target && whole < kMostWhole) {
    const size_t more = lane.waiting[count].bytes;
    if (count > 0 && bytes + more > options_.window_bytes) break;
    bytes += more;
    whole += lane.waiting[count].placed->bytes;
    ++count;
  }
  if (lane.open_bytes != 0 && lane.open_bytes + bytes > options_.window_bytes) return items;
  const auto end = lane.waiting.begin() + static_cast<std::ptrdiff_t>(count);
  items.assign(lane.waiting.begin(), end);
  lane.waiting.erase(lane.waiting.begin(), end);
  lane.waiting_bytes -= whole;
  lane.open_bytes += bytes;
  ++lane.sent;
  return items;
}

void PushWindow::Pump(uint32_t shard) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(lanes_[shard].pumped, true)) return;  // that thread sees what has changed
  }
  while (true) {
    std::vector<Item> items;
    Attempt attempt;
    size_t bytes = 0;
    {
      absl::MutexLock lock(&mu_);
      items = TakeGroup(lanes_[shard], bytes);
      if (items.empty()) {
        lanes_[shard].pumped = false;
        return;
      }
      attempt = attempt_;
    }
    const Way way = !calls_.ReadsLentMemory(shard) ? Way::kSent
                    : gradients_.lends()           ? Way::kLent
                                                   : Way::kSentNear;
    if (way == Way::kLent) {
      absl::MutexLock lock(&mu_);
      lanes_[shard].borrows = true;
    }
    // Not under the lock: it copies.
    calls_.Push(
        shard, Encode(items, attempt, way),
        [acks = attempt.acks, shard](const absl::StatusOr<PushReply>& reply) {
          // All outcomes are well: added now or before, or too late, of which the verdict will
          // tell, or in async too stale.
          ++acks->answered[shard];
          if (!reply.ok()) {
            if (acks->error.ok()) acks->error = reply.status();
            return;
          }
          for (const int outcome : reply->outcomes()) {
            ++(outcome == STALE ? acks->outcomes.refused : acks->outcomes.taken);
          }
        },
        [self = shared_from_this(), shard, bytes] {
          {
            absl::MutexLock lock(&self->mu_);
            self->lanes_[shard].open_bytes -= bytes;
          }
          self->Pump(shard);
        });
  }
}

std::shared_ptr<TensorPush> PushWindow::Encode(const std::vector<Item>& items,
                                               const Attempt& attempt, Way way) {
  auto push = std::make_shared<TensorPush>();
  PushRequest& head = push->head;
  head.set_step(attempt.step);
  head.set_attempt(attempt.attempt);
  head.set_contributor(options_.contributor);
  head.set_part(layout_.part());
  head.set_composition(options_.composition);
  if (attempt.scale != 1) head.set_scale(attempt.scale);
  const std::vector<uint64_t>& seen = *attempt.seen;
  uint64_t bytes = 0;
  for (const Item& item : items) {
    if (!seen.empty()) {
      head.add_seen(item.placed->slice < seen.size() ? seen[item.placed->slice] : 0);
    }
    push->slices.push_back(EncodeSlice(item, /*copy=*/!seen.empty(), way));
    bytes += push->slices.back().bytes.size();
  }
  absl::MutexLock lock(&mu_);
  sent_bytes_ += bytes;
  return push;
}

std::shared_ptr<std::string> PushWindow::TakeSpare() const {
  auto bytes = std::make_unique<std::string>();
  {
    absl::MutexLock lock(&spare_->mu);
    if (!spare_->bytes.empty()) {
      bytes = std::move(spare_->bytes.back());
      spare_->bytes.pop_back();
    }
  }
  return {bytes.release(), [spare = spare_](std::string* sent) {
            absl::MutexLock lock(&spare->mu);
            spare->bytes.emplace_back(sent);
          }};
}

TensorSlice PushWindow::EncodeSlice(const Item& item, bool copy, Way way) const {
  const TensorSpec& spec = tensors_[item.tensor];
  const TensorBytes::Piece gradient =
      gradients_.tensor(item.tensor).subspan(item.placed->begin, item.placed->bytes);
  const bool narrow = way == Way::kSent && options_.narrow != DATA_TYPE_UNSPECIFIED &&
                      spec.dtype() == F32 && !spec.buffer();
  TensorSlice slice;
  slice.slice = item.placed->slice;
  slice.dtype = narrow ? options_.narrow : spec.dtype();
  slice.nonzero = item.nonzero;
  if (way != Way::kLent) {  // who reads it where it lies finds zeros as fast
    const size_t element = ElementBytes(spec.dtype());
    if (slice.nonzero.empty()) {
      if (!spec.buffer()) slice.nonzero = FindNonzero(gradient, element);
    } else if (!AreWorthLeavingOut(slice.nonzero, gradient.size() / element)) {
      slice.nonzero.clear();
    }
    slice.packed = !slice.nonzero.empty();
  }
  if (way == Way::kLent || (!copy && !narrow && !slice.packed)) {
    slice.bytes = gradient;
    slice.owner = gradients_.owner();
    if (way == Way::kLent) slice.loan = gradients_.Lend(item.tensor);
    return slice;
  }
  const std::shared_ptr<std::string> made = TakeSpare();
  if (slice.packed) {
    PackNonzero(gradient, ElementBytes(spec.dtype()), slice.nonzero, made.get());
    if (narrow) {
      const std::shared_ptr<std::string> packed = TakeSpare();
      packed->swap(*made);
      Narrow(options_.narrow, {reinterpret_cast<const std::byte*>(packed->data()), packed->size()},
             made.get());
    }
  } else if (narrow) {
    Narrow(options_.narrow, gradient, made.get());
  } else {
    made->assign(reinterpret_cast<const char*>(gradient.data()), gradient.size());
  }
  slice.bytes = std::string_view(*made);
  slice.owner = made;
  return slice;
}

bool PushWindow::AllAcknowledged(std::optional<uint32_t> in_order) const {
  absl::MutexLock lock(&mu_);
  const Acks& acks = *attempt_.acks;
  if (!acks.error.ok()) return true;
  for (uint32_t shard = 0; shard < lanes_.size(); ++shard) {
    const Lane& lane = lanes_[shard];
    if (!lane.waiting.empty()) return false;
    // An acknowledgement makes room, and so is counted as sent what it made room for, before its
    // answer reaches the training thread: there is no moment between the two.
    if (acks.answered[shard] == lane.sent) continue;
    if (shard != in_order || lane.pumped || !calls_.KeepsOrder(shard)) return false;
  }
  return true;
}

absl::Status PushWindow::error() const {
  absl::MutexLock lock(&mu_);
  return attempt_.acks->error;
}

absl::Status PushWindow::AwaitAcknowledged(const AnswerQueue::Wait& wait,
                                           std::optional<uint32_t> in_order) {
  Flush();
  absl::Status status = wait([&] { return AllAcknowledged(in_order); });
  if (status.ok()) status = error();
  if (!status.ok()) Abandon();  // the caller may write its gradients again
  return status;
}

std::vector<uint32_t> PushWindow::TakeBorrowers() {
  absl::MutexLock lock(&mu_);
  std::vector<uint32_t> shards;
  for (uint32_t shard = 0; shard < lanes_.size(); ++shard) {
    if (std::exchange(lanes_[shard].borrows, false)) shards.push_back(shard);
  }
  return shards;
}

uint64_t PushWindow::TakeSentBytes() {
  absl::MutexLock lock(&mu_);
  return std::exchange(sent_bytes_, 0);
}

PushWindow::Outcomes PushWindow::outcomes() const {
  absl::MutexLock lock(&mu_);
  return attempt_.acks->outcomes;
}

void PushWindow::Abandon() {
  {
    absl::MutexLock lock(&mu_);
    for (Lane& lane : lanes_) {
      lane.waiting.clear();
      lane.waiting_bytes = 0;
    }
    // They are encoding their last message.
    mu_.Await(absl::Condition(this, &PushWindow::NobodyPumps));
  }
  calls_.DropUnsent();
}

bool PushWindow::NobodyPumps() const {
  return std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.pumped; });
}

size_t PushWindow::unacknowledged_bytes(uint32_t shard) const {
  absl::MutexLock lock(&mu_);
  return lanes_[shard].open_bytes;
}

}  // namespace parley
