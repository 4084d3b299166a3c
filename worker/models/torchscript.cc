#include "worker/models/torchscript.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/torch/torch_status.h"

namespace parley {
namespace {

class TorchScriptNetwork final : public Network {
 public:
  explicit TorchScriptNetwork(torch::jit::Module module) : module_(std::move(module)) {}

  at::Tensor Forward(const at::Tensor& x) override {
    const c10::IValue output = module_.forward({x});
    TORCH_CHECK(output.isTensor(), "forward of the TorchScript module returns ", output.tagKind(),
                " instead of one tensor");
    return output.toTensor();
  }

  void SetTraining(bool training) override { module_.train(training); }

  std::vector<NamedTensor> Tensors() const override { return TensorsOf(module_); }

 private:
  torch::jit::Module module_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> LoadTorchScript(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(
        "model.torchscript: ", path,
        " does not exist; in Python, torch.jit.script(module).save(\"FILE\") writes such a file"));
  }
  std::unique_ptr<Network> network;
  const absl::Status status =
      CatchTorch(absl::StrCat("model.torchscript: ", path, " is no TorchScript module"), [&] {
        torch::jit::Module module = torch::jit::load(path, c10::kCPU);
        module.train(true);
        network = std::make_unique<TorchScriptNetwork>(std::move(module));
      });
  if (!status.ok()) return status;
  return network;
}

}  // namespace parley
