#include "client/reduce/group_door.h"

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/shared_memory/local_socket.h"

namespace parley {
namespace {

// Who has connected and does not ask for so long is sent away.
constexpr absl::Duration kQuestionTime = absl::Seconds(5);

std::string NameOf(const std::string& address) { return absl::StrCat("parley-group ", address); }

bool Same(const GroupComposition& a, const GroupComposition& b) {
  return a.job() == b.job() && a.job_epoch() == b.job_epoch() &&
         a.contributor() == b.contributor() && a.composition() == b.composition();
}

}  // namespace

// One question and its answer.
class GroupDoor::Visit final : public LocalVisit {
 public:
  Visit(std::shared_ptr<Board> board, std::unique_ptr<LocalSocket> socket)
      : board_(std::move(board)), socket_(std::move(socket)) {}

  void Run() override {
    absl::StatusOr<LocalMessage> message = socket_->Receive(SteadyNow() + kQuestionTime);
    GroupQuestion question;
    if (message.ok() && question.ParseFromString(message->bytes)) Answer(question);
    Close();
  }
  void Close() override { socket_->Shutdown(); }

 private:
  void Answer(const GroupQuestion& question) {
    std::optional<Shown> shown;
    {
      absl::MutexLock lock(&board_->mu);
      shown = board_->shown;
    }
    GroupAnswer answer;
    std::vector<int> files;
    if (shown.has_value()) {
      *answer.mutable_group() = shown->group;
      answer.set_rank(shown->rank);
      if (Same(shown->group, question.group())) {
        files = {shown->segments.words->fd().get(), shown->segments.gradients->fd().get(),
                 shown->segments.values->fd().get()};
      }
    }
    socket_->Send(answer.SerializeAsString(), files).IgnoreError();
  }

  const std::shared_ptr<Board> board_;
  const std::unique_ptr<LocalSocket> socket_;
};

absl::StatusOr<std::unique_ptr<GroupDoor>> GroupDoor::Open(const std::string& address) {
  auto door = absl::WrapUnique(new GroupDoor(std::make_shared<Board>()));
  absl::StatusOr<std::unique_ptr<LocalDoor>> opened =
      LocalDoor::Open(NameOf(address), [board = door->board_](std::unique_ptr<LocalSocket> socket) {
        return std::make_shared<Visit>(board, std::move(socket));
      });
  if (!opened.ok()) return opened.status();
  door->door_ = *std::move(opened);
  return door;
}

void GroupDoor::Show(const GroupComposition& group, uint32_t rank, GroupSegments segments) {
  absl::MutexLock lock(&board_->mu);
  board_->shown = Shown{group, rank, std::move(segments)};
}

void GroupDoor::Hide() {
  absl::MutexLock lock(&board_->mu);
  board_->shown.reset();
}

absl::StatusOr<GroupSegments> GroupDoor::Ask(const std::string& address,
                                             const GroupComposition& group, uint32_t rank,
                                             uint32_t asked_rank, absl::Time deadline) {
  absl::StatusOr<std::unique_ptr<LocalSocket>> socket = LocalSocket::Connect(NameOf(address));
  if (!socket.ok()) return socket.status();
  GroupQuestion question;
  *question.mutable_group() = group;
  question.set_rank(rank);
  if (absl::Status sent = (*socket)->Send(question.SerializeAsString()); !sent.ok()) return sent;
  absl::StatusOr<LocalMessage> message = (*socket)->Receive(deadline);
  if (!message.ok()) return message.status();
  GroupAnswer answer;
  if (!answer.ParseFromString(message->bytes)) {
    return absl::InternalError(absl::StrCat("what answers at ", address, " is no worker"));
  }
  if (!Same(answer.group(), group) || message->files.size() != 3) {
    return absl::UnavailableError("it is of another composition of the node group");
  }
  if (answer.rank() != asked_rank) {
    return absl::InternalError(absl::StrCat("the worker at ", address, " is rank ", answer.rank(),
                                            " of the node group and not rank ", asked_rank));
  }
  GroupSegments segments;
  size_t file = 0;
  for (auto* const segment : {&segments.words, &segments.gradients, &segments.values}) {
    absl::StatusOr<std::shared_ptr<const MemorySegment>> mapped =
        MemorySegment::OfPeer(message->files[file++]);
    if (!mapped.ok()) {
      return absl::InternalError(
          absl::StrCat("of the worker at ", address, ": ", mapped.status().message()));
    }
    *segment = *std::move(mapped);
  }
  return segments;
}

}  // namespace parley
