#ifndef PARLEY_WORKER_DATA_TEXT_H_
#define PARLEY_WORKER_DATA_TEXT_H_

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "worker/data/datasets.h"

namespace parley {

// A text to predict each next token of, cut as PyTorch's word_language_model and the courses do
// (batchify, bptt). x and y: I64 [length], numbers of x.classes tokens; y's are those that follow
// x's. The words and their numbers are those of the part that is trained on (words.h). settings:
// with their defaults. All is held in memory, a token in 4 bytes. NotFound says what is needed;
// InvalidArgument where words are not UTF-8, or there is not one piece for each column; messages
// name the file.
absl::StatusOr<Datasets> OpenText(const Text& settings, FileSystem& files);

}  // namespace parley

#endif  // PARLEY_WORKER_DATA_TEXT_H_
