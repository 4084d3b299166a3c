#include "common/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace parley {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

class MemoryFileSystem::Writer final : public WritableFile {
 public:
  Writer(MemoryFileSystem& files, std::shared_ptr<Node> node)
      : files_(files), node_(std::move(node)) {
    absl::MutexLock lock(&files_.mu_);
    restarts_ = files_.restarts_;
  }

  absl::Status Append(absl::Span<const std::byte> bytes) override {
    const auto write = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (restarts_ != files_.restarts_) return absl::UnavailableError("the file is closed");
      // Done twice it still ends with these bytes once: a client writes at an offset.
      node_->content.resize(end_);
      node_->content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      node_->modified = files_.now_;
      return absl::OkStatus();
    };
    const absl::Status status = files_.Perform(write);
    absl::MutexLock lock(&files_.mu_);
    end_ = node_->content.size();
    return status;
  }

  absl::Status Sync() override {
    return files_.Perform([&] {
      node_->synced = node_->content;
      return absl::OkStatus();
    });
  }

  absl::Status Close() override {
    return files_.Perform([] { return absl::OkStatus(); });
  }

 private:
  MemoryFileSystem& files_;
  const std::shared_ptr<Node> node_;
  uint64_t restarts_ = 0;
  size_t end_ = 0;
};

class MemoryFileSystem::Reader final : public ReadableFile {
 public:
  Reader(MemoryFileSystem& files, std::string content, std::string path)
      : files_(files), content_(std::move(content)), path_(std::move(path)) {}

  uint64_t size() const override { return content_.size(); }

  absl::Status Read(uint64_t offset, absl::Span<std::byte> bytes) const override {
    return files_.Perform([&] {
      if (offset > content_.size() || bytes.size() > content_.size() - offset) {
        return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", content_.size()));
      }
      if (!bytes.empty()) std::memcpy(bytes.data(), content_.data() + offset, bytes.size());
      return absl::OkStatus();
    });
  }

 private:
  MemoryFileSystem& files_;
  const std::string content_;
  const std::string path_;
};

MemoryFileSystem::MemoryFileSystem() {
  auto root = std::make_shared<Node>();
  root->folder = true;
  names_["/"] = durable_["/"] = root;
}

void MemoryFileSystem::SetFault(uint64_t operation, Fault fault) {
  absl::MutexLock lock(&mu_);
  faults_[operation] = fault;
}

uint64_t MemoryFileSystem::operations() const {
  absl::MutexLock lock(&mu_);
  return operations_;
}

void MemoryFileSystem::Restart(uint64_t seed) {
  absl::MutexLock lock(&mu_);
  std::mt19937_64 random(seed);
  for (const Change& change : changes_) {
    if (random() % 2 == 0) change.apply(durable_);
  }
  changes_.clear();
  // What lies in a folder that is gone is gone too; a parent comes before its children.
  for (auto it = durable_.begin(); it != durable_.end();) {
    it = durable_.count(FolderOf(it->first)) == 0 ? durable_.erase(it) : std::next(it);
  }
  names_ = durable_;
  std::set<Node*> nodes;
  for (const auto& [path, node] : names_) nodes.insert(node.get());
  for (Node* node : nodes) {
    const bool appended = absl::StartsWith(node->content, node->synced);
    const size_t unsynced = appended ? node->content.size() - node->synced.size() : 0;
    const size_t size = node->synced.size() + (unsynced == 0 ? 0 : random() % (unsynced + 1));
    node->content = size > node->synced.size() && random() % 2 == 0
                        ? node->synced + std::string(size - node->synced.size(), '\0')
                        : node->content.substr(0, size);
    if (!appended) node->content = node->synced;
    node->synced = node->content;
  }
  faults_.clear();
  crashed_ = false;
  ++restarts_;
}

void MemoryFileSystem::BeforeEach(std::function<void(const std::string&)> hook) {
  absl::MutexLock lock(&mu_);
  hook_ = std::move(hook);
}

void MemoryFileSystem::SetNow(absl::Time now) {
  absl::MutexLock lock(&mu_);
  now_ = now;
}

void MemoryFileSystem::CallHook(const std::string& operation) {
  std::function<void(const std::string&)> hook;
  {
    absl::MutexLock lock(&mu_);
    hook = hook_;
  }
  if (hook) hook(operation);
}

absl::Status MemoryFileSystem::Perform(const std::function<absl::Status()>& operation) {
  absl::MutexLock lock(&mu_);
  ++operations_;
  const auto fault = faults_.find(operations_);
  if (fault != faults_.end() && fault->second == Fault::kCrash) crashed_ = true;
  if (crashed_) return absl::UnavailableError("the machine has crashed");
  if (fault == faults_.end()) return operation();
  if (fault->second == Fault::kFails) return absl::UnavailableError("the disk has failed");
  const absl::Status first = operation();
  if (fault->second == Fault::kRepeated) return operation();
  return first.ok() ? absl::UnavailableError("no reply") : first;
}

void MemoryFileSystem::ChangeNames(const std::string& folder, std::function<void(Names&)> apply) {
  apply(names_);
  changes_.push_back({folder, std::move(apply)});
}

absl::Status MemoryFileSystem::CheckFolderOf(const std::string& path) const {
  const auto found = names_.find(FolderOf(path));
  if (found != names_.end() && found->second->folder) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path, ": no such folder"));
}

absl::StatusOr<std::shared_ptr<MemoryFileSystem::Node>> MemoryFileSystem::Find(
    const std::string& path) const {
  const auto found = names_.find(path);
  if (found == names_.end()) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  return found->second;
}

absl::StatusOr<std::unique_ptr<WritableFile>> MemoryFileSystem::Create(const std::string& path) {
  CallHook("Create");
  std::shared_ptr<Node> node;
  const absl::Status status = Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (auto folder = CheckFolderOf(path); !folder.ok()) return folder;
    if (const auto found = names_.find(path); found != names_.end()) {
      node = found->second;
      if (node->folder) return absl::UnavailableError(absl::StrCat(path, ": is a folder"));
      node->content.clear();
    } else {
      node = std::make_shared<Node>();
      node->inode = ++last_inode_;
      ChangeNames(FolderOf(path), [path, node](Names& names) { names[path] = node; });
    }
    node->modified = now_;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::make_unique<Writer>(*this, std::move(node));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> MemoryFileSystem::Open(const std::string& path) {
  CallHook("Open");
  std::string content;
  const absl::Status status = Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(path);
    if (!node.ok()) return node.status();
    if ((*node)->folder) return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file"));
    content = (*node)->content;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::make_unique<Reader>(*this, std::move(content), path);
}

absl::Status MemoryFileSystem::Rename(const std::string& from, const std::string& to) {
  CallHook("Rename");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(from);
    if (!node.ok()) return node.status();
    if (auto folder = CheckFolderOf(to); !folder.ok()) return folder;
    ChangeNames(FolderOf(to), [from, to, node = *node](Names& names) {
      names.erase(from);
      names[to] = node;
    });
    return absl::OkStatus();
  });
}

absl::Status MemoryFileSystem::Link(const std::string& from, const std::string& to) {
  CallHook("Link");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(from);
    if (!node.ok()) return node.status();
    if (auto folder = CheckFolderOf(to); !folder.ok()) return folder;
    if (names_.count(to) != 0) return absl::AlreadyExistsError(absl::StrCat(to, ": exists"));
    ChangeNames(FolderOf(to), [to, node = *node](Names& names) { names[to] = node; });
    return absl::OkStatus();
  });
}

absl::Status MemoryFileSystem::Remove(const std::string& path) {
  CallHook("Remove");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(path);
    if (!node.ok()) return node.status();
    ChangeNames(FolderOf(path), [path](Names& names) { names.erase(path); });
    return absl::OkStatus();
  });
}

absl::Status MemoryFileSystem::RemoveDirectory(const std::string& path) {
  CallHook("RemoveDirectory");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(path);
    if (!node.ok()) return node.status();
    const auto first = names_.lower_bound(path + "/");
    if (first != names_.end() && first->first.compare(0, path.size() + 1, path + "/") == 0) {
      return absl::UnavailableError(absl::StrCat("cannot remove the folder ", path, ": not empty"));
    }
    ChangeNames(FolderOf(path), [path](Names& names) { names.erase(path); });
    return absl::OkStatus();
  });
}

absl::Status MemoryFileSystem::CreateDirectories(const std::string& path) {
  CallHook("CreateDirectories");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string folder = path.substr(0, end);
      const auto found = names_.find(folder);
      if (found != names_.end() && !found->second->folder) {
        return absl::UnavailableError(absl::StrCat(folder, ": is a file"));
      }
      if (found == names_.end()) {
        auto node = std::make_shared<Node>();
        node->folder = true;
        node->inode = ++last_inode_;
        ChangeNames(FolderOf(folder), [folder, node](Names& names) { names[folder] = node; });
      }
      if (end == std::string::npos) return absl::OkStatus();
    }
  });
}

absl::Status MemoryFileSystem::SyncDirectory(const std::string& path) {
  CallHook("SyncDirectory");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(path);
    if (!node.ok()) return node.status();
    for (const Change& change : changes_) {
      if (change.folder == path) change.apply(durable_);
    }
    changes_.erase(std::remove_if(changes_.begin(), changes_.end(),
                                  [&](const Change& change) { return change.folder == path; }),
                   changes_.end());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::string>> MemoryFileSystem::List(const std::string& directory) {
  CallHook("List");
  std::vector<std::string> listed;
  const absl::Status status = Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(directory);
    if (!node.ok()) return node.status();
    listed.clear();
    for (const auto& [path, child] : names_) {
      if (path != "/" && FolderOf(path) == directory) {
        listed.push_back(path.substr(path.rfind('/') + 1));
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return listed;
}

bool MemoryFileSystem::Exists(const std::string& path) {
  CallHook("Exists");
  return Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return Find(path).status(); }).ok();
}

absl::StatusOr<FileInfo> MemoryFileSystem::Info(const std::string& path) {
  CallHook("Info");
  FileInfo info;
  const absl::Status status = Perform([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    auto node = Find(path);
    if (!node.ok()) return node.status();
    info = {1, (*node)->inode, (*node)->modified};
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return info;
}

}  // namespace parley
