#ifndef PARLEY_CLIENT_TORCH_MODULE_BINDING_H_
#define PARLEY_CLIENT_TORCH_MODULE_BINDING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/session.h"
#include "client/torch/named_tensors.h"
#include "client/torch/use_watch.h"

namespace parley {

// Trains a LibTorch module through a Session. A training loop:
//
//   auto binding = *ModuleBinding::Create(*module);
//   binding->Attach(*session, training_samples, test_samples);
//   do {
//     while (auto plan = session->NextStep()) {
//       if (!plan->samples.empty()) binding->Backward(mean loss over plan->samples);
//       binding->Complete(sum of the losses);
//       binding->Pull();
//       while (auto due = *binding->PullEvaluation()) {  // with a test set
//         session->ReportEvaluation(what due->samples give);
//         binding->Pull();
//       }
//     }
//   } while (!*session->Finish({}) && binding->Pull().ok());
//
// Memory. From Attach to the binding's end the module's parameters are views of the session's
// parameter memory: forward reads what Pull brought, without a copy. They must not be written by
// others, nor replaced (module.to(...), set_data); they change inside Complete, Pull and
// PullEvaluation only, and from Complete to the next Pull they say nothing. Each gradient is moved,
// as soon as backward has it, into the session's gradient memory and sent while backward goes on;
// `.grad` is undefined afterwards. Buffers stay the module's own: Pull copies the service's values
// into them, Complete takes theirs out. When binding and session are destroyed the module keeps
// that memory with its last values, and nobody else has it. (A binding that ends before its session
// leaves views: what the session pulls then shows in them.)
//
// The module must outlive the binding; the session must outlive it too, or be destroyed after it.
// One thread, the training thread, calls the methods, but for PushFilled. Errors: what the Session
// returns (its codes at client/session.h); InvalidArgument for what LibTorch throws, with its
// message, and ResourceExhausted where a GPU has no memory. What goes wrong while gradients are
// taken, Backward says, and every later Backward and Complete too: the step cannot be sent.
class ModuleBinding {
 public:
  // Lists the module's tensors; called again in each step, since a scripted module may put another
  // tensor in the place of a buffer. Returns the same names in the same order each time.
  using Lister = std::function<std::vector<NamedTensor>()>;

  // InvalidArgument where there is nothing to train, or a tensor is none that the service can hold:
  // sparse, on another device than the CPU, of an element type that DataType lacks; or for what the
  // lister throws. A scripted module is a handle: the binding keeps one.
  static absl::StatusOr<std::unique_ptr<ModuleBinding>> Create(const torch::nn::Module& module);
  static absl::StatusOr<std::unique_ptr<ModuleBinding>> Create(const torch::jit::Module& module);
  static absl::StatusOr<std::unique_ptr<ModuleBinding>> Create(Lister lister);
  ~ModuleBinding();
  ModuleBinding(const ModuleBinding&) = delete;
  ModuleBinding& operator=(const ModuleBinding&) = delete;

  // What is registered: index i here is tensor i of the session.
  const std::vector<TensorSpec>& specs() const { return specs_; }

  // Registers the tensors, gives the module's values as the initial ones where this worker must,
  // makes the parameters views, and pulls. Waits until all members of the job have joined. Once:
  // FailedPrecondition after that.
  absl::Status Attach(Session& session, uint64_t training_samples, uint64_t test_samples);

  // As Attach, for a module that is a part of a model (Session::RegisterPart). `model`: the tensors
  // of the whole one, these among them. InvalidArgument where one of these is none of the model.
  absl::Status AttachPart(Session& session, const std::vector<TensorSpec>& model,
                          uint64_t training_samples, uint64_t test_samples);

  // Runs backward. `loss` is a scalar: the mean over the samples of the step's plan. Where the step
  // is cut into microbatches, call it once for each with its part of that mean (the microbatch's
  // mean times its share of the step's samples); gradients are added up and sent during the last
  // one, or by Complete where none was said to be that. A parameter that no microbatch has a
  // gradient for is not pushed; one that is frozen (requires_grad_(false)) has none until it is
  // not. After NextStep. InvalidArgument: a gradient is sparse, or comes after that one's was sent;
  // or a parameter has other memory than Attach gave it. FailedPrecondition: nothing was pulled
  // since Complete.
  absl::Status Backward(const at::Tensor& loss, bool last = true);

  // The same for who has another way to run it: `backward` leads LibTorch through the graph of some
  // of the module's parameters. What it gives is added to what these have, and not sent.
  absl::Status GatherGradients(absl::FunctionRef<void()> backward);
  // In `backward`: a gradient of one of the parameters that was computed in another way than by
  // LibTorch's backward. Others' are left out.
  void AddGradient(const at::Tensor& parameter, const at::Tensor& gradient);
  // The same for who writes a gradient, or a buffer's value after the step, into the session's
  // memory by itself (by index in specs()): it is there now, whole. Sends it. After a
  // GatherGradients of the step; any thread, one at a time.
  // nonzero: as Session::PushNonzero, where it is known.
  absl::Status PushFilled(size_t tensor, std::string_view nonzero = {});
  // Sends what these tensors have gathered, if anything. By index in specs().
  absl::Status PushGathered(absl::Span<const size_t> tensors);

  // What a step's gradients are multiplied by on their way to the session, from the next step on: 1
  // divided by what its loss was multiplied by (mixed precision). 1 until it is called.
  void MultiplyGradients(double factor) { factor_ = factor; }

  // What was gathered of a step that is not completed (Session::Abandon) does not count.
  void DropGradients();

  // For who computes a step while the session is at an earlier one (steps that overlap, as
  // PipeDream's). What the module is to be sent of a step: gradients, undefined where there are
  // none, and buffers; by index in specs().
  using StepTensors = std::vector<at::Tensor>;
  // From here on GatherGradients keeps what it gets apart from the session's memory (true), or puts
  // it there again (false). What was gathered is dropped.
  void GatherApart(bool apart);
  // What was gathered apart since the last call, and the buffers as they are now.
  absl::StatusOr<StepTensors> TakeGathered();
  // Has the module compute with these values of its parameters from here on, by index in specs()
  // (buffers are left out), or with the session's own where they are empty. Not while a backward of
  // other values runs: it reads those that the parameters have then.
  absl::Status UseValues(const StepTensors& values);

  // The next three are for the thread that the session's verbs are called on, while another one
  // computes with values of UseValues.
  //
  // Sends a step's tensors and completes the session's step. They go before it waits.
  absl::StatusOr<Verdict> CompleteWith(StepTensors tensors, double loss_sum);
  // Session::Pull; buffers are left as they are.
  absl::Status PullParameters();
  // Copies the parameters' values as last pulled into `values`, whose tensors are used again.
  absl::Status CopyParameters(StepTensors& values);

  // Pushes the buffers, if the step had a Backward, and gradients that were gathered and not sent
  // yet, and completes the step: Session::Complete.
  // loss_sum: sum over the samples of the step's plan, 0 where it has none. FailedPrecondition: the
  // step's gradients are not Backward's.
  absl::StatusOr<Verdict> Complete(double loss_sum);

  // Brings the newest version into parameters and buffers.
  absl::Status Pull();

  // Session::PullVersion, into parameters and buffers.
  absl::Status PullVersion(uint64_t version);

  // As Pull, but waits for the buffers only: forward, on this thread, waits before the first
  // operation of LibTorch that reads a parameter until that one is here (use_watch.h), so that it
  // begins while the last layers' are on their way. Until Complete, or another pull, parameters
  // must not be read in another way (data_ptr(), other threads). Session::AwaitParameter says what
  // becomes of the step where they do not come.
  absl::Status PullAhead();

  // Session::PullEvaluation, with the version that is to be evaluated in parameters and buffers.
  absl::StatusOr<std::optional<Session::PendingEvaluation>> PullEvaluation();

 private:
  class GradientHook;

  ModuleBinding(Lister lister, std::vector<NamedTensor> tensors, std::vector<TensorSpec> specs);

  absl::Status AttachTo(Session& session);  // that has registered the tensors
  absl::Status Initialize();
  absl::Status TakeBuffers();  // from the session's parameter memory
  void MakeViews();
  // Throws where the module does not list the tensors that it had.
  void ListBuffers();
  // Runs on the thread of backward that has just put the gradient of tensor i into its .grad.
  void GradientArrived(size_t i);
  // Into the session's memory; `adds`: to what is there.
  void Take(size_t i, const at::Tensor& gradient, bool adds);
  void Push(size_t i, std::string_view nonzero = {});
  absl::Status RunBackward(absl::FunctionRef<void()> backward, bool last);

  const Lister lister_;
  const std::vector<TensorSpec> specs_;
  std::vector<NamedTensor> tensors_;   // of buffers: as last listed
  Session* session_ = nullptr;         // set by Attach
  std::vector<at::Tensor> gradients_;  // views of the session's gradient memory
  std::vector<at::Tensor> values_;     // views of the session's parameter memory
  std::optional<UseWatch> watch_;      // after PullAhead

  double factor_ = 1;  // of gradients

  bool apart_ = false;
  StepTensors gathered_;  // apart

  enum class Gradient : uint8_t { kNone, kAdding, kPushed };

  absl::Mutex mu_;
  std::vector<Gradient> state_ ABSL_GUARDED_BY(mu_);  // in the current step
  bool last_ ABSL_GUARDED_BY(mu_) = false;            // the running backward is the step's last
  absl::Status error_ ABSL_GUARDED_BY(mu_);           // the first in a hook
  bool had_backward_ = false;
  bool pulled_ = false;  // since the last Complete
};

// What Backward says of a loop that is wrong.
absl::Status PullComesFirst();
absl::Status HasOtherMemory(const TensorSpec& spec);

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_MODULE_BINDING_H_
