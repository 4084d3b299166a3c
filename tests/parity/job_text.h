#ifndef PARLEY_TESTS_PARITY_JOB_TEXT_H_
#define PARLEY_TESTS_PARITY_JOB_TEXT_H_

#include <string>

#include "proto/job.pb.h"

namespace parley {

// A job as LoadJob gives it: `text` beside a name and, unless it says otherwise, model and data of
// a program's own, two workers, and 200 steps. A text that is refused fails the test.
JobConfig JobFromText(const std::string& text);

// The same as a file in `directory`; returns its path.
std::string WriteJob(const std::string& directory, const std::string& text);

}  // namespace parley

#endif  // PARLEY_TESTS_PARITY_JOB_TEXT_H_
