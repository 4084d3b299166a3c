#include "common/loop_threads.h"

namespace parley {

LoopThreads::LoopThreads(size_t helpers) {
  threads_.reserve(helpers);
  for (size_t i = 0; i < helpers; ++i) threads_.emplace_back([this] { Help(); });
}

LoopThreads::~LoopThreads() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void LoopThreads::Run(size_t count, const std::function<void(size_t)>& body) {
  Loop loop;
  loop.body = &body;
  loop.count = count;
  bool helped = false;
  if (count > 1 && !threads_.empty()) {
    absl::MutexLock lock(&mu_);
    helped = loop_ == nullptr;
    if (helped) loop_ = &loop;
  }
  Work(loop);
  if (!helped) return;
  absl::MutexLock lock(&mu_);
  // Nobody begins to help any more: nothing is left.
  mu_.Await(absl::Condition(this, &LoopThreads::NobodyHelps));
  loop_ = nullptr;
}

void LoopThreads::Work(Loop& loop) {
  for (size_t i = loop.next++; i < loop.count; i = loop.next++) (*loop.body)(i);
}

void LoopThreads::Help() {
  while (true) {
    Loop* loop = nullptr;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &LoopThreads::HasWork));
      if (stop_) return;
      loop = loop_;
      ++helping_;
    }
    Work(*loop);
    absl::MutexLock lock(&mu_);
    --helping_;
  }
}

}  // namespace parley
