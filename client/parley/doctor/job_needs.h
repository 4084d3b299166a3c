#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_JOB_NEEDS_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_JOB_NEEDS_H_

#include <cstdint>
#include <optional>

#include "client/parley/model_description.h"
#include "proto/job.pb.h"

namespace parley {

// What a job asks of a machine: with all of its processes on it, as `parley run` has them, or with
// one of them, whichever needs most.
struct JobNeeds {
  bool all_here = true;
  uint64_t processes = 0;        // on this machine
  uint64_t threads = 0;          // of all of these
  uint64_t compute_threads = 0;  // of forward and backward; 0: as many as there are cores
  uint64_t computing = 0;        // processes that compute, on this machine
  uint64_t open_files = 0;       // of the process that has most
  uint64_t memory = 0;           // bytes, of all processes on this machine
  uint64_t largest_process = 0;  // bytes of addresses, of the process that needs most
  uint64_t peers = 0;            // that may connect to one process at once
  uint64_t mappings = 0;         // pieces of memory that one process may map
  // Of the job's checkpoints; 0 where the model is not known.
  uint64_t checkpoint = 0;    // bytes of one
  uint64_t largest_file = 0;  // bytes
  uint64_t checkpoints = 0;   // that lie there at once, with the one that is being written
};

// model: null where it is not known; then its tensors count as nothing. all_here: whether the whole
// job is to run on this machine.
JobNeeds NeedsOf(const JobConfig& job, const ModelDescription* model, bool all_here);

// Of a small job: where no job is named.
JobNeeds NeedsOfSmallJob(bool all_here);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_JOB_NEEDS_H_
