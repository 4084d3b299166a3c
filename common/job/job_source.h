#ifndef PARLEY_COMMON_JOB_JOB_SOURCE_H_
#define PARLEY_COMMON_JOB_JOB_SOURCE_H_

#include <google/protobuf/text_format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace parley {

// A job as its file says it, together with where each field was written, so that whoever finds a
// field wrong can name the line. Owned by LoadJob.
class JobSource {
 public:
  // InvalidArgument with "PATH:LINE: field: ..." where the text is no job.
  static absl::StatusOr<std::unique_ptr<JobSource>> Parse(const std::string& path,
                                                          const std::string& text);

  // Applies "cluster.workers=4". Strings may come without quotes; a message comes as "{...}" and
  // replaces the old one; a field of a oneof replaces the other. InvalidArgument names the
  // override.
  absl::Status Override(const std::string& assignment);

  JobConfig& job() { return job_; }
  const JobConfig& job() const { return job_; }

  // InvalidArgument "PATH:LINE: field: problem", or "--set field=value: field: problem" where an
  // override gave it. field: "cluster.shards", "optimizer.overrides[1].pattern". The line of a
  // field that is not there is that of the message around it.
  absl::Status Error(std::string_view field, std::string_view problem) const;

 private:
  explicit JobSource(std::string path) : path_(std::move(path)) {}

  std::string Where(std::string_view field) const;

  const std::string path_;
  JobConfig job_;
  google::protobuf::TextFormat::ParseInfoTree places_;
  std::vector<std::string> overrides_;
};

}  // namespace parley

#endif  // PARLEY_COMMON_JOB_JOB_SOURCE_H_
