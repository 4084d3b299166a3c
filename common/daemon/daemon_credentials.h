#ifndef PARLEY_COMMON_DAEMON_DAEMON_CREDENTIALS_H_
#define PARLEY_COMMON_DAEMON_DAEMON_CREDENTIALS_H_

#include "absl/status/statusor.h"
#include "common/daemon/command_line.h"
#include "common/security/credentials.h"
#include "proto/job.pb.h"

namespace parley {

// The credentials that a daemon with these flags uses: those in the file that they name, or that
// lies beside the coordinator's address file, if it is there; else new ones, where the job or an
// address beyond this machine asks for some (docs/security.md). All processes of a job that share
// its directory have the same, whichever of them comes first. nullptr: the job is open.
// InvalidArgument where some are needed and no file is named, or the file is of the other kind than
// the job asks for; else the codes of ReadOrMakeCredentials.
absl::StatusOr<SharedCredentials> DaemonCredentials(Tls::Mode mode, const DaemonFlags& flags);

}  // namespace parley

#endif  // PARLEY_COMMON_DAEMON_DAEMON_CREDENTIALS_H_
