#include "worker/autocast.h"

#include <ATen/autocast_mode.h>

namespace parley {

AutocastScope::AutocastScope(Precision precision, c10::DeviceType device)
    : active_(precision != FLOAT32 && precision != PRECISION_UNSPECIFIED), device_(device) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  type_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_,
                                   precision == FLOAT16_AUTOCAST ? c10::kHalf : c10::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

}  // namespace parley
