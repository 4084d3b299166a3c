#include "client/parley/doctor/programs_check.h"

#include <gnu/libc-version.h>
#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/version_info.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/parley/child_process.h"
#include "client/parley/doctor/system_files.h"
#include "client/parley/log_tail.h"
#include "client/parley/memory_file.h"
#include "client/parley/programs.h"
#include "common/clock/steady_now.h"

namespace parley {
namespace {

constexpr char kLibraries[] = "libraries";

// LibTorch comes from a cluster's file system, perhaps for the first time.
constexpr absl::Duration kAnswer = absl::Seconds(60);
constexpr absl::Duration kLook = absl::Milliseconds(10);

ProgramAnswer Ask(const std::string& name) {
  ProgramAnswer answer;
  answer.name = name;
  const auto path = SiblingProgram(name);
  if (!path.ok()) return answer;
  answer.path = *path;
  MemoryFile out("out");
  MemoryFile err("err");
  if (!out.valid() || !err.valid()) {
    answer.error = "no memory for what it says";
    return answer;
  }
  auto child = ChildProcess::Start({*path, "--version"}, {.out = out.fd(), .err = err.fd()});
  if (!child.ok()) {
    answer.error = std::string(child.status().message());
    return answer;
  }
  const absl::Time deadline = SteadyNow() + kAnswer;
  while (!child->TryWait() && SteadyNow() < deadline) absl::SleepFor(kLook);
  if (!child->TryWait()) {
    child->Signal(SIGKILL);
    answer.error = absl::StrCat("has not answered within ", absl::FormatDuration(kAnswer));
    return answer;
  }
  answer.said = std::string(absl::StripAsciiWhitespace(out.Read()));
  if (const ChildExit exit = *child->TryWait(); !exit.clean()) {
    const std::string line = LastLine(err.Read());
    answer.error = absl::StrCat(Describe(exit), line.empty() ? "" : ": ", line);
  }
  return answer;
}

std::vector<uint64_t> VersionNumbers(const std::string& version) {
  std::vector<uint64_t> numbers;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(version, '.'))) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) break;
    numbers.push_back(number);
  }
  return numbers;
}

// "3.21.12" of the libprotobuf.so.32.0.12 that this process has mapped: the soname stands for 3.21,
// with which it was linked.
std::string LoadedProtobuf(const SystemFiles& files) {
  constexpr char kName[] = "/libprotobuf.so.";
  const std::string text = files.Text("/proc/self/maps").value_or("");
  const size_t at = text.find(kName);
  if (at == std::string::npos) return "";
  const std::string path = text.substr(at + 1, text.find('\n', at) - at - 1);
  uint64_t patch = 0;
  if (!absl::SimpleAtoi(path.substr(path.rfind('.') + 1), &patch)) return "";
  return absl::StrCat(GOOGLE_PROTOBUF_VERSION / 1'000'000, ".",
                      GOOGLE_PROTOBUF_VERSION / 1000 % 1000, ".", patch);
}

}  // namespace

std::vector<ProgramAnswer> AskPrograms(const std::vector<std::string>& names) {
  std::vector<ProgramAnswer> answers;
  answers.reserve(names.size());
  for (const std::string& name : names) answers.push_back(Ask(name));
  return answers;
}

Findings CheckPrograms(const std::vector<ProgramAnswer>& answers, const std::string& version) {
  Findings findings;
  for (const ProgramAnswer& answer : answers) {
    if (answer.path.empty()) {
      findings.push_back(Failure(answer.name, "is not beside this program, or not executable",
                                 "deploy/build lays all programs into one folder (out/bin); copy "
                                 "them together"));
    } else if (!answer.error.empty()) {
      const bool library = absl::StrContains(answer.error, "shared librar") ||
                           absl::StrContains(answer.error, "GLIBC");
      findings.push_back(Failure(
          answer.name, absl::StrCat(answer.path, " ", answer.error),
          library
              ? "deploy/bootstrap on this machine installs Debian's libraries; LibTorch lies in "
                "the folder of the build, which this machine must see, or deploy/build here"
              : "deploy/build again, on this machine if it is of another kind"));
    } else if (answer.said != absl::StrCat(answer.name, " ", version)) {
      findings.push_back(
          Failure(answer.name,
                  absl::StrCat(answer.path, " says '", answer.said, "'; this is parley ", version),
                  "programs of one job must be of one build: deploy/build, and copy "
                  "all of out/bin to each machine"));
    } else {
      findings.push_back(Fine(answer.name, absl::StrCat(version, ", as this program")));
    }
  }
  return findings;
}

std::vector<LibraryVersion> LookAtLibraries() {
  return {{"glibc", absl::StrCat(__GLIBC__, ".", __GLIBC_MINOR__), gnu_get_libc_version()},
          {"gRPC", GRPC_CPP_VERSION_STRING, grpc::Version()},
          {"protobuf",
           absl::StrCat(GOOGLE_PROTOBUF_VERSION / 1'000'000, ".",
                        GOOGLE_PROTOBUF_VERSION / 1000 % 1000, ".", GOOGLE_PROTOBUF_VERSION % 1000),
           LoadedProtobuf(SystemFiles())}};
}

Findings CheckLibraries(const std::vector<LibraryVersion>& libraries) {
  std::vector<std::string> texts;
  bool older = false;
  for (const LibraryVersion& library : libraries) {
    if (library.loaded.empty()) {
      texts.push_back(absl::StrCat(library.name, " built with ", library.built));
      continue;
    }
    std::string text = absl::StrCat(library.name, " ", library.loaded);
    if (library.loaded != library.built)
      absl::StrAppend(&text, " (built with ", library.built, ")");
    if (VersionNumbers(library.loaded) < VersionNumbers(library.built)) {
      older = true;
      absl::StrAppend(&text, ", which is newer");
    }
    texts.push_back(std::move(text));
  }
  const std::string found = absl::StrJoin(texts, "; ");
  if (!older) return {Fine(kLibraries, found)};
  return {Failure(kLibraries, found,
                  "apt upgrade (or deploy/bootstrap) on this machine brings the libraries that the "
                  "programs were built with; else deploy/build on a machine like this one")};
}

}  // namespace parley
