#include "worker/models/work_count.h"

namespace parley {
namespace {

thread_local WorkCount* t_current = nullptr;

}  // namespace

WorkCount::WorkCount() : outer_(t_current) { t_current = this; }
WorkCount::~WorkCount() { t_current = outer_; }

void WorkCount::Add(uint64_t multiplications) {
  if (t_current != nullptr) t_current->multiplications_ += multiplications;
}

}  // namespace parley
