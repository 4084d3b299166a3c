#include "client/torch/testing/fake_session.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/nonzero_blocks.h"
#include "common/tensor.h"

namespace parley {
namespace {

// Calls f with pointers of the element type, for the types that the fake computes with.
template <class F>
void WithElements(const TensorSpec& spec, absl::Span<std::byte> a, absl::Span<std::byte> b, F f) {
  const uint64_t count = ElementCount(spec);
  if (spec.dtype() == F32)
    f(reinterpret_cast<float*>(a.data()), reinterpret_cast<float*>(b.data()), count);
  if (spec.dtype() == F64)
    f(reinterpret_cast<double*>(a.data()), reinterpret_cast<double*>(b.data()), count);
}

}  // namespace

std::vector<std::string> FakeSession::Calls() const {
  absl::MutexLock lock(&mu_);
  return calls_;
}

std::vector<size_t> FakeSession::pushed_until(size_t tensor) const {
  absl::MutexLock lock(&mu_);
  const auto found = pushed_until_.find(tensor);
  return found == pushed_until_.end() ? std::vector<size_t>() : found->second;
}

std::vector<std::string> FakeSession::PushedNames() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const size_t i : pushed_) names.push_back(tensors_[i].name());
  return names;
}

absl::Status FakeSession::Register(std::vector<TensorSpec> tensors, uint64_t /*training_samples*/,
                                   uint64_t /*test_samples*/) {
  tensors_ = std::move(tensors);
  gradients_.emplace(tensors_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    served_.emplace_back(ByteCount(tensors_[i]));
    parameters_->emplace_back(ByteCount(tensors_[i]));
    if (i >= initial.size()) continue;
    WithElements(tensors_[i], served_[i].span(), served_[i].span(),
                 [&](auto* values, auto*, uint64_t count) {
                   std::fill(values, values + count, initial[i]);
                 });
  }
  return absl::OkStatus();
}

absl::Status FakeSession::Initialize(absl::Span<const absl::Span<const std::byte>> values) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (values[i].size() != served_[i].bytes_) return absl::InvalidArgumentError("size");
    std::memcpy(served_[i].span().data(), values[i].data(), values[i].size());
  }
  return absl::OkStatus();
}

absl::Span<const std::byte> FakeSession::parameter(size_t tensor) const {
  return (*parameters_)[tensor].span();
}

namespace {

// Parts of so many bytes, so that large tensors have most of them.
constexpr size_t kPart = 8;

size_t RoundUp(size_t bytes) { return (bytes + kPart - 1) / kPart * kPart; }

}  // namespace

std::vector<Session::ShownPart> FakeSession::ShownParts(size_t tensor, size_t begin,
                                                        size_t end) const {
  if (!shows || tensors_[tensor].buffer()) return {};
  const absl::Span<std::byte> whole = (*parameters_)[tensor].span();
  begin = std::min(RoundUp(begin), whole.size());
  end = std::min(RoundUp(end), whole.size());
  const std::byte* from = whole.data();
  std::shared_ptr<const void> owner = parameters_;
  if (moves) {
    // Of tensors of one size each comes to be where another one was.
    size_t of_size = 1;
    size_t rank = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i == tensor || tensors_[i].buffer() || (*parameters_)[i].span().size() != whole.size())
        continue;
      ++of_size;
      rank += i < tensor ? 1 : 0;
    }
    auto& copy = moved_[{whole.size(), (rank + version()) % (2 * of_size)}];
    if (copy == nullptr) copy = std::make_shared<std::vector<std::byte>>(whole.size());
    // Others may read it where it is this version already.
    const absl::Span<const std::byte> some = whole.subspan(begin, end - begin);
    std::byte* const to = copy->data() + begin;
    if (!std::equal(some.begin(), some.end(), to)) std::copy(some.begin(), some.end(), to);
    from = copy->data();
    owner = copy;
  }
  std::vector<ShownPart> parts;
  for (size_t at = begin; at < end; at += kPart) {
    if (hidden == at) continue;
    parts.push_back({at, {from + at, std::min(kPart, whole.size() - at)}, owner});
  }
  return parts;
}

absl::Span<std::byte> FakeSession::gradient(size_t tensor) { return gradients_->tensor(tensor); }

uint64_t FakeSession::data_epochs() const {
  uint64_t epochs = 0;
  for (size_t i = 0; i < losses_.size() && i < plans_.size(); ++i) {
    epochs = plans_[i].data_epoch + (plans_[i].ends_epoch ? 1 : 0);
  }
  return epochs;
}

void FakeSession::TakeServed() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::memcpy((*parameters_)[i].span().data(), served_[i].span().data(), served_[i].bytes_);
  }
}

absl::Status FakeSession::Pull() {
  TakeServed();
  absl::MutexLock lock(&mu_);
  calls_.push_back("pull");
  return pull_status;
}

absl::Status FakeSession::PullAhead() {
  if (absl::Status status = Pull(); !status.ok()) return status;
  awaited_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].buffer()) continue;
    const absl::Span<std::byte> memory = (*parameters_)[i].span();
    std::fill(memory.begin(), memory.end(), std::byte{0xff});  // NaN
  }
  return absl::OkStatus();
}

absl::Status FakeSession::AwaitParameter(size_t tensor) {
  return AwaitParameterUntil(tensor, served_[tensor].bytes_);
}

absl::Status FakeSession::AwaitParameterUntil(size_t tensor, size_t bytes) {
  const absl::Span<std::byte> served =
      served_[tensor].span().first(std::min(RoundUp(bytes), served_[tensor].bytes_));
  std::copy(served.begin(), served.end(), (*parameters_)[tensor].span().begin());
  if (bytes < served_[tensor].bytes_) {
    awaited_until_[tensor].push_back(bytes);
  } else {
    awaited_.push_back(tensors_[tensor].name());
  }
  return absl::OkStatus();
}

std::optional<StepPlan> FakeSession::NextStep() {
  absl::MutexLock lock(&mu_);
  if (next_ == plans_.size()) return std::nullopt;
  pushed_.clear();
  begun_.clear();
  return plans_[next_++];
}

bool FakeSession::HasAwaitedPeers(const std::string& what) const {
  absl::MutexLock lock(&mu_);
  return std::any_of(awaited_peers_.begin(), awaited_peers_.end(),
                     [&](const std::string& one) { return absl::EndsWith(one, what); });
}

absl::Status FakeSession::AwaitPeers(const std::string& what, const std::function<bool()>& done) {
  {
    absl::MutexLock lock(&mu_);
    awaited_peers_.push_back(what);
  }
  absl::MutexLock lock(&wake_mu_);
  while (!done()) woken_.Wait(&wake_mu_);
  return absl::OkStatus();
}

void FakeSession::Wake() {
  absl::MutexLock lock(&wake_mu_);
  woken_.SignalAll();
}

std::vector<StepPlan> FakeSession::Ahead(size_t count) const {
  const size_t end = std::min(plans_.size(), next_ + count);
  return {plans_.begin() + static_cast<std::ptrdiff_t>(next_),
          plans_.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<std::string> FakeSession::pushed_nonzero(size_t tensor) const {
  absl::MutexLock lock(&mu_);
  const auto found = pushed_nonzero_.find(tensor);
  return found == pushed_nonzero_.end() ? std::vector<std::string>() : found->second;
}

absl::Status FakeSession::PushNonzero(size_t tensor, std::string_view nonzero) {
  const absl::Span<const std::byte> gradient = gradients_->tensor(tensor);
  const size_t element = ElementBytes(tensors_[tensor].dtype());
  const uint64_t elements = gradient.size() / element;
  bool fits = NonzeroElements(nonzero, elements).has_value();
  if (fits) {
    ForRuns(nonzero, 0, elements, [&](uint64_t begin, uint64_t end, bool holds) {
      fits = fits && (holds || AllZero(gradient.subspan(begin * element, (end - begin) * element)));
    });
  }
  if (!fits) {
    return absl::InternalError(absl::StrCat(tensors_[tensor].name(), " has other zeros"));
  }
  {
    absl::MutexLock lock(&mu_);
    pushed_nonzero_[tensor].emplace_back(nonzero);
  }
  return Push(tensor);
}

absl::Status FakeSession::PushUntil(size_t tensor, size_t bytes) {
  absl::MutexLock lock(&mu_);
  if (absl::Status begun = CheckBegun(tensor); !begun.ok()) return begun;
  const absl::Span<const std::byte> gradient = gradients_->tensor(tensor).first(bytes);
  begun_[tensor].assign(gradient.begin(), gradient.end());
  pushed_until_[tensor].push_back(bytes);
  return push_status;
}

absl::Status FakeSession::CheckBegun(size_t tensor) const {
  const auto begun = begun_.find(tensor);
  if (begun == begun_.end() ||
      std::equal(begun->second.begin(), begun->second.end(), gradients_->tensor(tensor).begin())) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(tensors_[tensor].name(), " was pushed in part, and changed after that"));
}

absl::Status FakeSession::Push(size_t tensor) {
  absl::MutexLock lock(&mu_);
  if (absl::Status begun = CheckBegun(tensor); !begun.ok()) return begun;
  pushed_.push_back(tensor);
  calls_.push_back(absl::StrCat("push ", tensors_[tensor].name()));
  return push_status;
}

absl::StatusOr<Verdict> FakeSession::Complete(double loss_sum) {
  const StepPlan& plan = plans_[next_ - 1];
  losses_.push_back(loss_sum);
  Verdict verdict;
  verdict.set_step(plan.step);
  if (late.count(plan.step) != 0) {
    verdict.set_outcome(Verdict::STALE);
    if (on_complete) on_complete(plan.step);
    return verdict;
  }
  verdict.set_outcome(Verdict::APPLY);
  verdict.set_total_weight(plan.weight);
  Share& share = *verdict.add_shares();
  share.set_samples(plan.samples.size());
  share.set_loss_sum(loss_sum);
  {
    absl::MutexLock lock(&mu_);
    calls_.push_back("complete");
    for (const size_t i : pushed_) {
      if (tensors_[i].buffer()) {
        std::memcpy(served_[i].span().data(), gradients_->tensor(i).data(), served_[i].bytes_);
        continue;
      }
      WithElements(tensors_[i], served_[i].span(), gradients_->tensor(i),
                   [&](auto* values, const auto* gradient, uint64_t count) {
                     using Element = std::decay_t<decltype(*values)>;
                     for (uint64_t e = 0; e < count; ++e) {
                       values[e] -= static_cast<Element>(rate_) * gradient[e];
                     }
                   });
    }
  }
  if (on_complete) on_complete(plan.step);
  return verdict;
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> FakeSession::PullEvaluation() {
  const uint64_t done = version();
  if (done == 0 || part.begin() == part.end()) return std::nullopt;
  if (!evaluations_.empty() && evaluations_.back().version() == done) return std::nullopt;
  const bool ends_epoch = plans_[done - 1].ends_epoch;
  if (!ends_epoch && done < plans_.size()) return std::nullopt;
  PendingEvaluation due;
  due.version = done;
  due.epoch = data_epochs() + (ends_epoch ? 0 : 1);
  due.samples = part;
  TakeServed();
  return due;
}

absl::StatusOr<bool> FakeSession::ReportEvaluation(const Evaluation& evaluation) {
  if (untaken_reports > 0) {
    --untaken_reports;
    return false;
  }
  evaluations_.push_back(evaluation);
  return true;
}

absl::StatusOr<bool> FakeSession::Finish(const std::vector<PhaseSeconds>& seconds) {
  TakeServed();
  if (goes_back_to.has_value()) {
    next_ = *goes_back_to;
    losses_.resize(next_);
    ++job_epoch_;
    goes_back_to.reset();
    return false;
  }
  seconds_ = seconds;
  finished_ = true;
  return true;
}

FirstCause FakeSession::Fail(const std::string& reason, bool preempted) {
  if (!failure_.has_value()) {
    failure_.emplace();
    failure_->set_text(absl::StrCat("worker 0: ", reason));
    failure_->set_preempted(preempted);
  }
  if (on_fail) on_fail();
  return *failure_;
}

}  // namespace parley
