#ifndef PARLEY_CLIENT_TORCH_TORCH_STATUS_H_
#define PARLEY_CLIENT_TORCH_TORCH_STATUS_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace parley {

// Runs `f`, which calls LibTorch, and makes a status of what it throws: "WHAT: first line of the
// exception"; ResourceExhausted where a GPU has no memory for it, else InvalidArgument. LibTorch's
// exceptions go no further than this.
template <class F>
absl::Status CatchTorch(std::string_view what, F&& f) {
  const auto error = [&](std::string_view text, absl::StatusCode code) {
    if (const size_t end = text.find('\n'); end != std::string_view::npos)
      text = text.substr(0, end);
    return absl::Status(code, absl::StrCat(absl::string_view(what.data(), what.size()), ": ",
                                           absl::string_view(text.data(), text.size())));
  };
  try {
    f();
    return absl::OkStatus();
  } catch (const c10::OutOfMemoryError& e) {
    return error(e.what_without_backtrace(), absl::StatusCode::kResourceExhausted);
  } catch (const c10::Error& e) {
    return error(e.what_without_backtrace(), absl::StatusCode::kInvalidArgument);
  } catch (const std::exception& e) {
    return error(e.what(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace parley

#endif  // PARLEY_CLIENT_TORCH_TORCH_STATUS_H_
