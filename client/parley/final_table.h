#ifndef PARLEY_CLIENT_PARLEY_FINAL_TABLE_H_
#define PARLEY_CLIENT_PARLEY_FINAL_TABLE_H_

#include <cstdint>
#include <string>

#include "proto/coordinator.pb.h"

namespace parley {

// Where the things lie that a run leaves.
struct RunPlaces {
  std::string job;      // the resolved job file
  std::string targets;  // Prometheus' file_sd file
  std::string logs;
  std::string checkpoint;  // empty: none was written
};

// What `parley run` prints when the job has finished: each evaluation, throughput, where the
// workers' time went (mean of `workers`), and the places. own_program: what trained was not
// parley-worker. A few lines, each ended.
std::string FinalTable(const GetStatusReply& status, uint32_t workers, bool own_program,
                       const RunPlaces& places);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_FINAL_TABLE_H_
