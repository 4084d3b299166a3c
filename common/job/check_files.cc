#include "common/job/check_files.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace parley {
namespace {

absl::Status Missing(const std::string& field, const std::string& path, const std::string& advice) {
  return absl::NotFoundError(absl::StrCat(field, ": ", path, " is not there; ", advice));
}

absl::Status CheckIdx(const Idx& idx, FileSystem& files) {
  for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                 "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::string path = absl::StrCat(idx.directory(), "/", name, ".gz");
    if (files.Exists(path) || files.Exists(absl::StrCat(idx.directory(), "/", name))) continue;
    return Missing("data.idx.directory", path,
                   "Fashion-MNIST comes with Debian: apt-get install dataset-fashion-mnist, then "
                   "directory: \"/usr/share/datasets/fashion-mnist\"");
  }
  return absl::OkStatus();
}

absl::Status CheckCifar10(const Cifar10& cifar10, FileSystem& files) {
  for (const std::string name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                                 "data_batch_5", "test_batch"}) {
    const std::string path = absl::StrCat(cifar10.directory(), "/", name, ".bin");
    if (files.Exists(path)) continue;
    return Missing("data.cifar10.directory", path,
                   "unpack CIFAR-10's binary version (cifar-10-binary.tar.gz) and give the folder "
                   "of its .bin files");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFiles(const JobConfig& job, FileSystem& files) {
  if (job.model().has_torchscript() && !files.Exists(job.model().torchscript())) {
    return Missing("model.torchscript", job.model().torchscript(),
                   "write it from Python by torch.jit.script(module).save(FILE)");
  }
  const std::string& start = job.checkpoint().start_from();
  if (!start.empty() && !files.Exists(start)) {
    return Missing("checkpoint.start_from", start,
                   "give a checkpoint's folder or the folder with its `latest`");
  }
  if (job.data().has_idx()) return CheckIdx(job.data().idx(), files);
  if (job.data().has_cifar10()) return CheckCifar10(job.data().cifar10(), files);
  for (const std::string* path :
       {&job.data().safetensors().train(), &job.data().safetensors().test()}) {
    if (path->empty() || files.Exists(*path)) continue;
    return Missing(path == &job.data().safetensors().train() ? "data.safetensors.train"
                                                             : "data.safetensors.test",
                   *path, "write tensors x and y from Python by safetensors' save_file");
  }
  return absl::OkStatus();
}

}  // namespace parley
