#ifndef PARLEY_CLIENT_PARLEY_DOCTOR_PROGRAMS_CHECK_H_
#define PARLEY_CLIENT_PARLEY_DOCTOR_PROGRAMS_CHECK_H_

#include <string>
#include <vector>

#include "client/parley/doctor/finding.h"

namespace parley {

// What another program of ours has said to --version.
struct ProgramAnswer {
  std::string name;   // "parley-worker"
  std::string path;   // empty: it is not beside this one
  std::string said;   // on stdout: "parley-worker 0.1.0"
  std::string error;  // why it has not answered as asked, with the last line of its stderr
};

// Runs the programs beside this one, one after the other, for a limited time each. On the main
// thread.
std::vector<ProgramAnswer> AskPrograms(const std::vector<std::string>& names);

// Whether all are there, start on this machine, and are of this one's version.
Findings CheckPrograms(const std::vector<ProgramAnswer>& answers, const std::string& version);

// A library that this program was built with, and the one that it has found here.
struct LibraryVersion {
  std::string name;    // "gRPC"
  std::string built;   // "1.51.1"
  std::string loaded;  // empty: not known
};

std::vector<LibraryVersion> LookAtLibraries();

// An older one than at the build may lack what is called.
Findings CheckLibraries(const std::vector<LibraryVersion>& libraries);

}  // namespace parley

#endif  // PARLEY_CLIENT_PARLEY_DOCTOR_PROGRAMS_CHECK_H_
