#include "common/security/credential_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/file_descriptor.h"
#include "common/security/new_credentials.h"

namespace parley {
namespace {

constexpr size_t kMostBytes = 64 << 10;
constexpr absl::string_view kHead =
    "# Whoever has this file takes part in the job: keep it to yourself (docs/security.md).\n";
constexpr absl::string_view kToken = "token: ";
constexpr size_t kLeastToken = 32;

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno,
                             absl::StrCat("the job's credentials cannot be ", what, ": ", path));
}

std::string Text(const Credentials& credentials) {
  return absl::StrCat(kHead, kToken, credentials.token, "\n", credentials.authority,
                      credentials.certificate, credentials.key);
}

// The next block of PEM of this kind, which `text` then is behind; empty where there is none.
std::string TakeBlock(absl::string_view kind, absl::string_view& text) {
  const std::string begin = absl::StrCat("-----BEGIN ", kind, "-----\n");
  const std::string end = absl::StrCat("-----END ", kind, "-----\n");
  if (text.substr(0, begin.size()) != begin) return "";
  const size_t at = text.find(end);
  if (at == absl::string_view::npos) return "";
  const std::string block(text.substr(0, at + end.size()));
  text.remove_prefix(block.size());
  return block;
}

absl::StatusOr<SharedCredentials> Parse(absl::string_view text, const std::string& path) {
  const absl::Status wrong = absl::DataLossError(absl::StrCat(
      path,
      " is no file of a job's credentials; if it is not one that you have put there, remove "
      "it and start the job again: it makes a new one"));
  Credentials read;
  if (!absl::ConsumePrefix(&text, kHead) || !absl::ConsumePrefix(&text, kToken)) return wrong;
  const size_t line = text.find('\n');
  if (line == absl::string_view::npos || line < kLeastToken) return wrong;
  read.token = std::string(text.substr(0, line));
  for (const char c : read.token) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return wrong;
  }
  text.remove_prefix(line + 1);
  if (!text.empty()) {
    read.authority = TakeBlock("CERTIFICATE", text);
    read.certificate = TakeBlock("CERTIFICATE", text);
    read.key = TakeBlock("PRIVATE KEY", text);
    if (read.authority.empty() || read.certificate.empty() || read.key.empty() || !text.empty()) {
      return wrong;
    }
  }
  return std::make_shared<const Credentials>(std::move(read));
}

// A whole file that nobody else can read, in the folder of `path`; its name.
absl::StatusOr<std::string> WriteBeside(const std::string& path, absl::string_view text) {
  std::string name = absl::StrCat(path, ".XXXXXX");
  const FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));  // with mode 0600
  if (!file.valid()) return Failed("made", path);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const absl::Status status = Failed("written", path);
      (void)::unlink(name.c_str());
      return status;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(file.get()) != 0) {
    const absl::Status status = Failed("written", path);
    (void)::unlink(name.c_str());
    return status;
  }
  return name;
}

}  // namespace

std::string CredentialsBeside(const std::string& address_file) {
  const size_t slash = address_file.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : address_file.substr(0, slash + 1);
  return absl::StrCat(folder, kCredentialFile);
}

absl::StatusOr<SharedCredentials> ReadCredentials(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Failed("read", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Failed("read", path);
  if (!S_ISREG(info.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no file"));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path,
                     ": others than its owner may read the job's credentials: chmod 600 it; or, if "
                     "they may have "
                     "been read, remove it and start the job again, which makes new ones"));
  }
  std::string text;
  text.resize(kMostBytes + 1);
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t read = ::read(file.get(), text.data() + size, text.size() - size);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Failed("read", path);
    if (read == 0) break;
    size += static_cast<size_t>(read);
  }
  return Parse(absl::string_view(text).substr(0, size), path);
}

absl::StatusOr<SharedCredentials> ReadOrMakeCredentials(const std::string& path, bool tls) {
  absl::StatusOr<SharedCredentials> there = ReadCredentials(path);
  if (!absl::IsNotFound(there.status())) return there;
  const absl::StatusOr<Credentials> made = NewCredentials(tls);
  if (!made.ok()) return made.status();
  const absl::StatusOr<std::string> temporary = WriteBeside(path, Text(*made));
  if (!temporary.ok()) return temporary.status();
  const absl::Cleanup remove = [&] { (void)::unlink(temporary->c_str()); };
  // Not a rename, which would replace what another process has made and handed out meanwhile.
  if (::link(temporary->c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return Failed("made", path);
  }
  return ReadCredentials(path);
}

}  // namespace parley
