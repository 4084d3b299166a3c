// A rank of a node group whose peers, other processes of the machine, are hostile: what asks at its
// door, what answers its own question, and what stands and changes in the memory that it is shown.
// It shows its memory only to its own composition, and reads nothing outside of what it was shown.
//
// An input begins with a byte of flags (below), one that says which files come along, and the
// length of a message (two bytes); then come the message and what stands in the words: the first
// half at first, the second half after they have been looked at.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/reduce/group_door.h"
#include "client/reduce/group_values.h"
#include "client/reduce/group_words.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/local_socket.h"
#include "common/shared_memory/memory_segment.h"
#include "proto/local_group.pb.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/shown_files.h"

namespace parley {
namespace {

// Flags.
constexpr uint8_t kAsks = 1;     // the peer, with the message
constexpr uint8_t kAnswers = 2;  // with the message; else as a rank does that means well

// The other segments are too small for the values.
constexpr size_t kWordsBytes = 4096;
constexpr size_t kValuesBytes = 8192;
const size_t kGradients[] = {512, 64, 0, 1000};
const std::pair<uint64_t, uint32_t> kValues[] = {{100, 1}, {8, 0}, {1, 1}, {6000, 1}};

absl::Time Soon() { return SteadyNow() + absl::Seconds(5); }

GroupComposition Composition() {
  GroupComposition group;
  group.set_job("job");
  group.set_composition(4);
  return group;
}

// What lives for as long as the process.
struct World {
  std::string own = absl::StrCat("own:", ::getpid());
  std::string peer = absl::StrCat("peer:", ::getpid());
  ShownFiles files{4096, 5000};
  std::shared_ptr<MemorySegment> words = *MemorySegment::Create(kWordsBytes);
  std::shared_ptr<MemorySegment> values = *MemorySegment::Create(kValuesBytes);
  std::unique_ptr<LocalListener> peer_door = *LocalListener::Listen("parley-group " + peer);
};

void Ask(const World& world, const std::string& message) {
  const auto socket = *LocalSocket::Connect("parley-group " + world.own);
  Require(socket->Send(message).ok());
  const absl::StatusOr<LocalMessage> answer = socket->Receive(Soon());
  Require(!absl::IsDeadlineExceeded(answer.status()));
  if (!answer.ok() || answer->files.empty()) return;
  GroupQuestion question;
  Require(question.ParseFromString(message));
  question.DiscardUnknownFields();
  Require(question.group().SerializeAsString() == Composition().SerializeAsString());
}

// By two bits for each: the right one, or another one; then a bit for one that is missing, and one
// for one more.
std::vector<int> FilesOf(const World& world, uint8_t which) {
  const int words = world.words->fd().get();
  const int right[] = {words, world.files.large().fd().get(), world.values->fd().get()};
  std::vector<int> files;
  for (const int file : right) {
    const int kinds[] = {file, words, world.files.odd(), world.files.unsealed()};
    files.push_back(kinds[which % 4]);
    which /= 4;
  }
  if ((which & 1) != 0) files.pop_back();
  if ((which & 2) != 0) files.push_back(words);
  return files;
}

// Nothing outside of it is read.
void Read(const std::byte* begin, size_t bytes, const MemorySegment& segment) {
  Require(begin >= segment.data() && begin + bytes <= segment.data() + segment.bytes());
  Touch({begin, bytes});
}

void ReadWords(const GroupSegments& shown, const std::function<void()>& change) {
  const auto peer = PeerWords::Make(shown.words, shown.gradients, kGradients);
  if (!peer.ok()) return;
  const uint64_t opens = (*peer)->opens();
  change();
  for (size_t tensor = 0; tensor < std::size(kGradients); ++tensor) {
    (void)(*peer)->Get(tensor, 1);
    (void)(*peer)->weight();
    Read((*peer)->gradient(tensor), kGradients[tensor], *shown.gradients);
  }
  (void)(*peer)->Stands(opens);
}

void ReadValues(const GroupSegments& shown) {
  const ValuesLayout layout(kValues, 1);
  const auto peer = PeerValues::Make(layout, shown.values);
  if (!peer.ok()) return;
  Require(layout.bytes() <= shown.values->bytes());
  for (uint32_t slice = 0; slice < std::size(kValues); ++slice) {
    std::vector<std::byte> to(kValues[slice].first);
    (void)(*peer)->Take({.slice = slice, .rank = 1, .version = 1, .bytes = to.size()},
                        absl::MakeSpan(to));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  static World& world = *new World;
  const uint8_t flags = data[0];
  const std::string input(reinterpret_cast<const char*>(data) + 4, size - 4);
  const std::string message = input.substr(0, data[2] + 256 * data[3]);
  const std::string content = input.substr(message.size());
  if ((flags & kAsks) != 0) {
    const auto door = *GroupDoor::Open(world.own);
    door->Show(Composition(), 1, {world.words, world.words, world.words});
    Ask(world, message);
    return 0;
  }
  const auto fill = [&](MemorySegment& segment, size_t from) {
    std::memset(segment.data(), 0, segment.bytes());
    const size_t bytes = std::min(segment.bytes(), content.size() - from);
    std::memcpy(segment.data(), content.data() + from, bytes);
  };
  const size_t half = content.size() / 2;
  fill(*world.words, 0);
  fill(*world.values, half);
  GroupAnswer answer;
  *answer.mutable_group() = Composition();
  answer.set_rank(1);
  const std::vector<int> files = FilesOf(world, data[1]);
  std::thread peer([&] {
    const auto socket = *world.peer_door->Accept();
    Require(socket->Receive(Soon()).ok());  // else its end would reset the connection
    (void)socket->Send((flags & kAnswers) != 0 ? message : answer.SerializeAsString(), files);
  });
  const absl::StatusOr<GroupSegments> shown =
      GroupDoor::Ask(world.peer, Composition(), 0, 1, Soon());
  peer.join();
  if (!shown.ok()) {
    Require(!absl::IsDeadlineExceeded(shown.status()));
    return 0;
  }
  ReadWords(*shown, [&] { fill(*world.words, half); });
  ReadValues(*shown);
  return 0;
}

}  // namespace parley
