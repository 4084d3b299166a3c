#include "server/coordinator/job_directory.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/seed.h"

namespace parley {
namespace {

constexpr char kRecordPrefix[] = "generation-";
constexpr uint64_t kSmallFile = 4096;

std::string Checksum(const std::string& text) {
  return absl::StrFormat("%08x",
                         crc32(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

}  // namespace

JobDirectory::JobDirectory(FileSystem& files, std::string path, Ask ask)
    : files_(files), path_(std::move(path)), ask_(std::move(ask)) {}

absl::Status JobDirectory::CheckNoOwner() const {
  if (!files_.Exists(path_)) return absl::OkStatus();
  if (auto content = ReadWholeFile(files_, address_file(), kSmallFile); content.ok()) {
    const std::string address(absl::StripAsciiWhitespace(*content));
    if (auto status = CheckAddress(address, address_file()); !status.ok()) return status;
  }
  auto newest = NewestGeneration();
  if (!newest.ok()) return newest.status();
  return CheckAddress(AddressIn(*newest), RecordFile(*newest));
}

absl::Status JobDirectory::CheckAddress(const std::string& address,
                                        const std::string& where) const {
  if (address.empty() || !ask_(address).ok()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("a coordinator runs already for this directory: it answers at ", address,
                   " (named in ", where, "); stop it first, or choose another --out"));
}

absl::Status JobDirectory::Prepare() {
  if (absl::Status status = files_.CreateDirectories(path_); !status.ok()) return status;
  // So that a crash of the machine does not take the folder away with all that is synced in it. Its
  // parent may be one that this user cannot open; then the system has to see to it.
  files_.SyncDirectory(std::filesystem::path(path_).parent_path().string()).IgnoreError();
  const std::string probe = absl::StrCat(path_, "/.probe-", absl::Hex(RandomIncarnation()));
  if (absl::Status status = WriteFileAtomically(files_, probe, ""); !status.ok()) return status;
  return files_.Remove(probe);
}

absl::StatusOr<uint64_t> JobDirectory::Claim(const std::string& address) {
  auto newest = NewestGeneration();
  if (!newest.ok()) return newest.status();
  if (auto status = CheckAddress(AddressIn(*newest), RecordFile(*newest)); !status.ok()) {
    return status;
  }
  const uint64_t generation = *newest + 1;
  const std::string body = absl::StrCat("address ", address, "\n");
  const std::string temporary =
      absl::StrCat(path_, "/.", kRecordPrefix, absl::Hex(RandomIncarnation()));
  const absl::Status made = CreateExclusively(files_, RecordFile(generation), temporary,
                                              absl::StrCat(body, "crc32 ", Checksum(body), "\n"));
  if (absl::IsAlreadyExists(made)) {
    return absl::AlreadyExistsError(
        absl::StrCat("another coordinator has just taken ", RecordFile(generation),
                     " and with it this job; stop it first, or choose another --out"));
  }
  if (!made.ok()) return made;
  return generation;
}

absl::Status JobDirectory::WriteAddress(const std::string& address) {
  return WriteFileAtomically(files_, address_file(), address + "\n");
}

absl::Status JobDirectory::WriteTargets(const std::string& content) {
  return WriteFileAtomically(files_, path_ + "/targets.json", content);
}

absl::StatusOr<std::string> JobDirectory::ReadAddress() const {
  auto content = ReadWholeFile(files_, address_file(), kSmallFile);
  if (absl::IsNotFound(content.status())) return std::string();
  if (!content.ok()) return content.status();
  return std::string(absl::StripAsciiWhitespace(*content));
}

void JobDirectory::RemoveAddress(const std::string& address) {
  auto content = ReadWholeFile(files_, address_file(), kSmallFile);
  if (content.ok() && absl::StripAsciiWhitespace(*content) == address) {
    (void)files_.Remove(address_file());  // a stale one does no harm: nobody answers there
  }
}

absl::StatusOr<uint64_t> JobDirectory::NewestGeneration() const {
  auto names = files_.List(path_);
  if (!names.ok()) return names.status();
  uint64_t newest = 0;
  for (const std::string& name : *names) {
    uint64_t number = 0;
    if (absl::StartsWith(name, kRecordPrefix) &&
        absl::SimpleAtoi(name.substr(sizeof(kRecordPrefix) - 1), &number)) {
      newest = std::max(newest, number);
    }
  }
  return newest;
}

std::string JobDirectory::RecordFile(uint64_t generation) const {
  return absl::StrFormat("%s/%s%08d", path_, kRecordPrefix, generation);
}

std::string JobDirectory::AddressIn(uint64_t generation) const {
  if (generation == 0) return "";
  auto content = ReadWholeFile(files_, RecordFile(generation), kSmallFile);
  if (!content.ok()) return "";
  const std::vector<std::string> lines = absl::StrSplit(*content, '\n');
  if (lines.size() < 2 || !absl::StartsWith(lines[0], "address ") ||
      lines[1] != absl::StrCat("crc32 ", Checksum(lines[0] + "\n"))) {
    return "";
  }
  return lines[0].substr(std::string_view("address ").size());
}

}  // namespace parley
