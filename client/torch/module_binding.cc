#include "client/torch/module_binding.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client/torch/dtype.h"
#include "client/torch/torch_status.h"

namespace parley {
namespace {

// A tensor over memory that is not its own; keeps the owner.
at::Tensor View(const std::byte* memory, const TensorSpec& spec,
                const std::shared_ptr<const void>& owner) {
  // LibTorch has no read-only tensors; nobody writes to a parameter but the session.
  auto* data = const_cast<std::byte*>(memory);
  return at::from_blob(
      data, at::IntArrayRef(spec.shape().data(), spec.shape_size()), [owner](void*) {},
      at::TensorOptions().dtype(*ToScalarType(spec.dtype())));
}

absl::Status SparseGradient(const TensorSpec& spec) {
  return absl::InvalidArgumentError(
      absl::StrCat(spec.name(), " has a sparse gradient; only dense ones can be sent"));
}

// Whether it may have a gradient: now, or when it is unfrozen (requires_grad_) later.
bool IsTrainable(const TensorSpec& spec, const at::Tensor& tensor) {
  return !spec.buffer() && (tensor.is_floating_point() || tensor.is_complex());
}

}  // namespace

class ModuleBinding::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(ModuleBinding& binding, size_t tensor) : binding_(binding), tensor_(tensor) {}
  void operator()(const at::Tensor& /*parameter*/) override { binding_.GradientArrived(tensor_); }

 private:
  ModuleBinding& binding_;
  const size_t tensor_;
};

absl::StatusOr<std::unique_ptr<ModuleBinding>> ModuleBinding::Create(Lister lister) {
  std::vector<NamedTensor> tensors;
  absl::Status status = CatchTorch("listing the module's tensors", [&] { tensors = lister(); });
  if (!status.ok()) return status;
  auto specs = SpecsOf(tensors);
  if (!specs.ok()) return specs.status();
  return absl::WrapUnique(
      new ModuleBinding(std::move(lister), std::move(tensors), *std::move(specs)));
}

absl::StatusOr<std::unique_ptr<ModuleBinding>> ModuleBinding::Create(
    const torch::nn::Module& module) {
  return Create(Lister([&module] { return TensorsOf(module); }));
}

ModuleBinding::ModuleBinding(Lister lister, std::vector<NamedTensor> tensors,
                             std::vector<TensorSpec> specs)
    : lister_(std::move(lister)),
      specs_(std::move(specs)),
      tensors_(std::move(tensors)),
      state_(specs_.size(), Gradient::kNone) {}

ModuleBinding::~ModuleBinding() {
  if (values_.empty()) return;
  // What was pulled ahead and nobody has read.
  for (size_t i = 0; watch_.has_value() && i < specs_.size(); ++i) {
    if (!specs_[i].buffer()) session_->AwaitParameter(i).IgnoreError();
  }
  CatchTorch("taking the hooks off the parameters", [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      at::Tensor& tensor = tensors_[i].tensor;
      if (!IsTrainable(specs_[i], tensor)) continue;
      torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
    }
  }).IgnoreError();
  watch_.reset();
}

absl::Status ModuleBinding::Attach(Session& session, uint64_t training_samples,
                                   uint64_t test_samples) {
  if (session_ != nullptr) return absl::FailedPreconditionError("the module is attached already");
  const absl::Status status = session.Register(specs_, training_samples, test_samples);
  return status.ok() ? AttachTo(session) : status;
}

absl::Status ModuleBinding::AttachPart(Session& session, const std::vector<TensorSpec>& model,
                                       uint64_t training_samples, uint64_t test_samples) {
  if (session_ != nullptr) return absl::FailedPreconditionError("the module is attached already");
  std::map<std::string, const TensorSpec*> by_name;
  for (const TensorSpec& spec : model) by_name[spec.name()] = &spec;
  std::vector<TensorSpec> own = specs_;
  for (TensorSpec& spec : own) {
    const auto found = by_name.find(spec.name());
    if (found == by_name.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the model has no tensor ", spec.name()));
    }
    *spec.mutable_stages() = found->second->stages();
  }
  const absl::Status status =
      session.RegisterPart(std::move(own), model, training_samples, test_samples);
  return status.ok() ? AttachTo(session) : status;
}

absl::Status ModuleBinding::AttachTo(Session& session) {
  session_ = &session;
  absl::Status status;
  if (session.must_initialize()) {
    if (status = Initialize(); !status.ok()) return status;
  }
  status = CatchTorch("making the parameters views", [&] { MakeViews(); });
  if (!status.ok()) return status;
  return Pull();
}

absl::Status ModuleBinding::Initialize() {
  std::vector<at::Tensor> contiguous;
  std::vector<absl::Span<const std::byte>> values;
  absl::Status status = CatchTorch("reading the initial values", [&] {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& named : tensors_) {
      contiguous.push_back(named.tensor.contiguous());
      values.emplace_back(static_cast<const std::byte*>(contiguous.back().const_data_ptr()),
                          contiguous.back().nbytes());
    }
  });
  if (!status.ok()) return status;
  return session_->Initialize(values);
}

void ModuleBinding::MakeViews() {
  for (size_t i = 0; i < specs_.size(); ++i) {
    gradients_.push_back(View(session_->gradient(i).data(), specs_[i], nullptr));
  }
  // The module goes on with them when session and binding are gone.
  const std::shared_ptr<const void> memory = session_->parameter_memory();
  for (size_t i = 0; i < specs_.size(); ++i) {
    values_.push_back(View(session_->parameter(i).data(), specs_[i], memory));
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].buffer()) continue;
    at::Tensor& parameter = tensors_[i].tensor;
    parameter.set_data(values_[i]);
    parameter.mutable_grad() = at::Tensor();
    if (!IsTrainable(specs_[i], parameter)) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<GradientHook>(*this, i));
  }
}

void ModuleBinding::GradientArrived(size_t i) {
  const c10::NoGradGuard no_grad;
  const at::Tensor gradient = std::exchange(tensors_[i].tensor.mutable_grad(), at::Tensor());
  if (!gradient.defined()) return;  // LibTorch calls for a gradient that has none, too
  if (apart_) {
    at::Tensor& sum = gathered_[i];
    if (gradient.layout() != c10::kStrided) {
      absl::MutexLock lock(&mu_);
      error_.Update(SparseGradient(specs_[i]));
    } else if (sum.defined()) {
      sum.add_(gradient, factor_);
    } else {
      sum = factor_ == 1 ? gradient : gradient.mul(factor_);
    }
    return;
  }
  Gradient before = Gradient::kNone;
  bool last = false;
  {
    absl::MutexLock lock(&mu_);
    before = state_[i];
    last = last_;
    if (before == Gradient::kPushed) {
      error_.Update(absl::InvalidArgumentError(absl::StrCat(
          specs_[i].name(), " got a second gradient after its gradient of the step was sent")));
    } else if (gradient.layout() != c10::kStrided) {
      error_.Update(SparseGradient(specs_[i]));
    }
    if (!error_.ok()) return;
    state_[i] = Gradient::kAdding;
  }
  Take(i, gradient, before != Gradient::kNone);
  if (last) Push(i);
}

void ModuleBinding::Take(size_t i, const at::Tensor& gradient, bool adds) {
  at::Tensor& sum = gradients_[i];
  if (adds) {
    sum.add_(gradient, factor_);
  } else if (factor_ == 1) {
    sum.copy_(gradient);
  } else {
    at::mul_out(sum, gradient, at::scalar_tensor(factor_, sum.options()));
  }
}

void ModuleBinding::Push(size_t i, std::string_view nonzero) {
  absl::Status status = nonzero.empty() ? session_->Push(i) : session_->PushNonzero(i, nonzero);
  absl::MutexLock lock(&mu_);
  state_[i] = Gradient::kPushed;
  error_.Update(status);
}

absl::Status PullComesFirst() {
  return absl::FailedPreconditionError(
      "Backward: Pull comes first: the parameters are those from before the last step");
}

absl::Status HasOtherMemory(const TensorSpec& spec) {
  return absl::InvalidArgumentError(
      absl::StrCat(spec.name(),
                   " has other memory than the binding gave it (by to(), or set_data()?): what the "
                   "service says of it would not be seen"));
}

absl::Status ModuleBinding::Backward(const at::Tensor& loss, bool last) {
  if (!pulled_) return PullComesFirst();
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].buffer()) continue;
    if (tensors_[i].tensor.const_data_ptr() != values_[i].const_data_ptr()) {
      return HasOtherMemory(specs_[i]);
    }
  }
  if (absl::Status status = RunBackward([&] { loss.backward(); }, last); !status.ok() || !last) {
    return status;
  }
  // Had their gradient in an earlier microbatch, but not in the last.
  std::vector<size_t> all(specs_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return PushGathered(all);
}

absl::Status ModuleBinding::GatherGradients(absl::FunctionRef<void()> backward) {
  return RunBackward(backward, /*last=*/false);
}

void ModuleBinding::AddGradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].tensor.is_same(parameter)) continue;
    tensors_[i].tensor.mutable_grad() = gradient;
    GradientArrived(i);
  }
}

absl::Status ModuleBinding::RunBackward(absl::FunctionRef<void()> backward, bool last) {
  {
    absl::MutexLock lock(&mu_);
    last_ = last;
  }
  had_backward_ = true;
  if (watch_.has_value() && watch_->unused() == 0) watch_.reset();
  absl::Status status = CatchTorch("backward", [&] { backward(); });
  absl::MutexLock lock(&mu_);
  // An error of the service comes before what LibTorch made of it.
  return error_.ok() ? status : error_;
}

absl::Status ModuleBinding::PushGathered(absl::Span<const size_t> tensors) {
  for (const size_t i : tensors) {
    bool gathered = false;
    {
      absl::MutexLock lock(&mu_);
      gathered = state_[i] == Gradient::kAdding;
    }
    if (gathered) Push(i);
  }
  absl::MutexLock lock(&mu_);
  return error_;
}

absl::Status ModuleBinding::PushFilled(size_t i, std::string_view nonzero) {
  {
    absl::MutexLock lock(&mu_);
    if (state_[i] != Gradient::kNone) {
      error_.Update(absl::InvalidArgumentError(
          absl::StrCat(specs_[i].name(), " got a second gradient in a step")));
    }
    if (!error_.ok()) return error_;
  }
  Push(i, nonzero);
  absl::MutexLock lock(&mu_);
  return error_;
}

void ModuleBinding::DropGradients() {
  had_backward_ = false;
  absl::MutexLock lock(&mu_);
  state_.assign(state_.size(), Gradient::kNone);
}

void ModuleBinding::GatherApart(bool apart) {
  apart_ = apart;
  gathered_.assign(specs_.size(), at::Tensor());
  DropGradients();
}

absl::StatusOr<ModuleBinding::StepTensors> ModuleBinding::TakeGathered() {
  StepTensors taken = std::exchange(gathered_, StepTensors(specs_.size()));
  absl::Status status = CatchTorch("reading the buffers", [&] {
    const c10::NoGradGuard no_grad;
    ListBuffers();
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].buffer()) taken[i] = tensors_[i].tensor.clone();
    }
  });
  if (!status.ok()) return status;
  absl::MutexLock lock(&mu_);
  if (!error_.ok()) return error_;
  return taken;
}

absl::Status ModuleBinding::UseValues(const StepTensors& values) {
  watch_.reset();
  return CatchTorch("changing the parameters' values", [&] {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].buffer()) continue;
      tensors_[i].tensor.set_data(values.empty() ? values_[i] : values[i]);
    }
  });
}

absl::StatusOr<Verdict> ModuleBinding::CompleteWith(StepTensors tensors, double loss_sum) {
  absl::Status pushed;
  absl::Status status = CatchTorch("sending what a step has gathered", [&] {
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!tensors[i].defined()) continue;
      gradients_[i].copy_(tensors[i]);
      pushed.Update(session_->Push(i));
    }
  });
  if (!status.ok()) return status;
  if (!pushed.ok()) return pushed;
  tensors.clear();  // the session has its copies
  return session_->Complete(loss_sum);
}

absl::Status ModuleBinding::PullParameters() { return session_->Pull(); }

absl::Status ModuleBinding::CopyParameters(StepTensors& values) {
  // Those that were pulled ahead, and nobody has read.
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].buffer()) continue;
    if (absl::Status here = session_->AwaitParameter(i); !here.ok()) return here;
  }
  return CatchTorch("copying the parameters", [&] {
    const c10::NoGradGuard no_grad;
    values.resize(specs_.size());
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].buffer()) continue;
      if (values[i].defined()) {
        values[i].copy_(values_[i]);
      } else {
        values[i] = values_[i].clone();
      }
    }
  });
}

void ModuleBinding::ListBuffers() {
  std::vector<NamedTensor> listed = lister_();
  if (listed.size() != tensors_.size()) {
    throw std::runtime_error("the module's list of tensors has changed while it was trained");
  }
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].buffer()) tensors_[i] = std::move(listed[i]);
  }
}

absl::StatusOr<Verdict> ModuleBinding::Complete(double loss_sum) {
  pulled_ = false;
  if (std::exchange(had_backward_, false)) {
    // Of microbatches of which none was said to be the last one.
    std::vector<size_t> all(specs_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    if (absl::Status pushed = PushGathered(all); !pushed.ok()) return pushed;
    absl::Status status = CatchTorch("reading the buffers", [&] {
      const c10::NoGradGuard no_grad;
      std::vector<size_t> buffers;  // that are not pushed (PushFilled)
      {
        absl::MutexLock lock(&mu_);
        for (size_t i = 0; i < specs_.size(); ++i) {
          if (specs_[i].buffer() && state_[i] == Gradient::kNone) buffers.push_back(i);
        }
      }
      if (!buffers.empty()) ListBuffers();
      for (const size_t i : buffers) {
        gradients_[i].copy_(tensors_[i].tensor);
        Push(i);
      }
    });
    if (!status.ok()) return status;
  }
  {
    absl::MutexLock lock(&mu_);
    if (!error_.ok()) return error_;
    if (std::count(state_.begin(), state_.end(), Gradient::kAdding) != 0) {
      return absl::FailedPreconditionError(
          "Complete: gradients have come that Backward was not called for: the loop has called "
          "loss.backward() in its place, which sends nothing");
    }
    state_.assign(state_.size(), Gradient::kNone);
  }
  watch_.reset();
  return session_->Complete(loss_sum);
}

absl::Status ModuleBinding::Pull() {
  watch_.reset();
  if (absl::Status status = session_->Pull(); !status.ok()) return status;
  pulled_ = true;
  return TakeBuffers();
}

absl::Status ModuleBinding::PullVersion(uint64_t version) {
  watch_.reset();
  if (absl::Status status = session_->PullVersion(version); !status.ok()) return status;
  pulled_ = true;
  return TakeBuffers();
}

absl::Status ModuleBinding::PullAhead() {
  watch_.reset();
  if (absl::Status status = session_->PullAhead(); !status.ok()) return status;
  pulled_ = true;
  if (absl::Status status = TakeBuffers(); !status.ok()) return status;
  // What goes wrong, Complete says.
  watch_.emplace(values_,
                 [this](size_t tensor) { session_->AwaitParameter(tensor).IgnoreError(); });
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Session::PendingEvaluation>> ModuleBinding::PullEvaluation() {
  const uint64_t version = session_->version();
  const uint64_t job_epoch = session_->epochs().job;
  auto due = session_->PullEvaluation();
  if (!due.ok()) return due;
  if (!due->has_value() && session_->version() == version && session_->epochs().job == job_epoch) {
    return due;  // nothing was pulled
  }
  watch_.reset();
  if (absl::Status status = TakeBuffers(); !status.ok()) return status;
  return due;
}

absl::Status ModuleBinding::TakeBuffers() {
  return CatchTorch("writing the buffers", [&] {
    const c10::NoGradGuard no_grad;
    ListBuffers();
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].buffer()) tensors_[i].tensor.copy_(values_[i]);
    }
  });
}

}  // namespace parley
