#ifndef PARLEY_CLIENT_PARLEY_PROGRESS_H_
#define PARLEY_CLIENT_PARLEY_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace parley {

// How long the rest of the job takes, from the steps seen so far. Not thread-safe.
class TimeLeft {
 public:
  void See(const GetStatusReply& status, absl::Time now);
  // Nothing before two different steps were seen, or where the number of steps is unknown.
  std::optional<absl::Duration> Get() const;

 private:
  // The steps of some time past, oldest first: a rate of the whole job would forget too slowly, one
  // of two polls would jump.
  struct Point {
    absl::Time time;
    uint64_t step;
  };
  std::vector<Point> points_;
  uint64_t total_ = 0;
};

// "epoch 2/5  step 312/1500  loss 0.4123  1923 samples/s  1:23 left", or what the job waits for
// while it does not train yet.
std::string ProgressLine(const GetStatusReply& status, std::optional<absl::Duration> left);

// The same with a bar before it, as long as the rest leaves room, in `columns` characters.
std::string ProgressBar(const GetStatusReply& status, std::optional<absl::Duration> left,
                        int columns);

// "epoch 2  step 600  accuracy 0.8812  top-5 0.9971  loss 0.3301"; without accuracies where the
// loss knows no classes.
std::string EvaluationLine(const Evaluation& evaluation);

// "workers: 4, 1 of them not here" of a job that trains; nothing may wait for that one, so that it
// is no matter of what_is_missing. Empty where it is not known.
std::string WantedText(const GetStatusReply& status);

// How many of the wanted workers are not there, while the job has steps to do.
uint32_t AbsentWorkers(const GetStatusReply& status);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_PROGRESS_H_
